"""Operations that several handlers share, each with the parts of the broker that it needs."""
