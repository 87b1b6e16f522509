"""State stores: where a controller keeps its groups, and which controller may change them."""
