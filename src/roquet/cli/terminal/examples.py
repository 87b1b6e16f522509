"""Examples: command lines that `--help` of each command shows."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

EXAMPLES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        # servers
        "dev": ("roquet dev", "roquet dev --data ./dev-data --dashboard"),
        "serve": (
            "roquet serve --brokers 2 --data /var/lib/roquet",
            "roquet serve --brokers 1 --replicas 2 --controllers 3 --in-sync 2",
        ),
        "namesrv": ("roquet namesrv", "roquet namesrv --controller file:controller"),
        "namesrv settings": ("roquet namesrv settings",),
        "namesrv set": ("roquet namesrv set orderMessageEnable=true --dry-run",),
        "broker": (
            "roquet broker -c broker.conf",
            "roquet broker --name broker-b --port 10921 -n ns1:9876",
        ),
        "broker settings": ("roquet broker settings broker-a --json",),
        "broker set": ("roquet broker set broker-a fileReservedTime=48 --dry-run",),
        "broker drain": (
            "roquet broker drain broker-a --wait 600",
            "roquet broker drain broker-a --undo",
        ),
        "controller": (
            "roquet controller --store file:controller",
            "roquet controller --store etcd:10.0.0.7:2379,10.0.0.8:2379",
        ),
        "proxy": ("roquet proxy --namesrv ns1:9876", "roquet proxy --port 8081 --host 127.0.0.1"),
        "dashboard": (
            "roquet dashboard --profile prod --read-only",
            "roquet dashboard --login --audit-file audit.jsonl",
        ),
        # messages
        "produce": (
            "roquet produce orders -m 'twelve pears' --key o-17 --tag paid",
            "roquet produce orders --delay 10m < lines.txt",
        ),
        "consume": (
            "roquet consume orders --from last",
            "roquet consume orders --group billing --count 100 --json",
            r"roquet consume orders --format '{queue}\t{offset}\t{body}'",
        ),
        "message show": ("roquet message show 7F0000010000ABCD0000000000000000 -t orders",),
        "message find": (
            "roquet message find orders --key o-17",
            "roquet message find orders --from 2026-01-31T12:00 --to 2026-01-31T12:05",
        ),
        "message at": ("roquet message at orders broker-a 0 1234",),
        "message why-late": ("roquet message why-late 7F0000010000ABCD0000000000000000 -t orders",),
        "dlq ls": ("roquet dlq ls",),
        "dlq show": ("roquet dlq show billing --limit 5",),
        "dlq resend": (
            "roquet dlq resend billing --all --dry-run",
            "roquet dlq resend billing --key o-17",
        ),
        "set-aside ls": ("roquet set-aside ls",),
        "set-aside retry": ("roquet set-aside retry --all --dry-run",),
        # operation
        "topic ls": ("roquet topic ls", "roquet topic ls --watch 5", "roquet topic ls --json"),
        "topic show": ("roquet topic show orders", "roquet topic show orders --watch"),
        "topic create": (
            "roquet topic create orders --queues 4",
            "roquet topic create steps --order --attribute +message.type=FIFO",
        ),
        "topic update": ("roquet topic update orders --perm R --broker broker-a",),
        "topic resize": ("roquet topic resize orders 2 --dry-run",),
        "topic delete": ("roquet topic delete orders --dry-run",),
        "group show": ("roquet group show billing", "roquet group show billing --watch"),
        "group ls": ("roquet group ls", "roquet group ls --watch 5"),
        "group create": (
            "roquet group create billing --retries 3",
            "roquet group create billing --no-enabled",
            "roquet group create billing --attribute +priority.ageing.ms=60000",
        ),
        "group delete": ("roquet group delete billing --dry-run",),
        "group fork": (
            "roquet group fork billing --at 14:00 --as billing-replay --dry-run",
            "roquet group fork billing --at first --as billing-replay -t orders --yes",
        ),
        "group reset": (
            "roquet group reset billing -t orders --to first --dry-run",
            "roquet group reset billing -t orders --to last --queue broker-a:0",
        ),
        "mirror": (
            "roquet mirror --from ns1:9876 --to ns2:9876 --topics 'orders*' --once",
            "roquet mirror --from old --to new --groups billing --rate 500/s",
        ),
        "cluster show": ("roquet cluster show", "roquet cluster show broker-a"),
        "cluster replicas": ("roquet cluster replicas --watch",),
        "cluster health": (
            "roquet cluster health",
            "roquet cluster health --brokers 3 --json --profile prod",
        ),
        "cluster elect": ("roquet cluster elect broker-a --to 2",),
        "cluster retire": ("roquet cluster retire broker-a --wait 600",),
        "profile set": (
            "roquet profile set dev --namesrv 10.0.0.5:9876",
            "roquet profile set prod -n ns1:9876,ns2:9876 --access-key alice \\\n"
            "    --secret-key-command 'pass show roquet/prod'",
        ),
        "profile ls": ("roquet profile ls",),
        "profile show": ("roquet profile show", "roquet profile show prod"),
        "profile use": ("roquet profile use dev", "roquet profile use --none"),
        "profile rm": ("roquet profile rm dev",),
        "acl export": ("roquet acl export access.json --broker broker-a",),
        "acl import": ("roquet acl import access.json --dry-run",),
        "acl migrate": ("roquet acl migrate plain_acl.yml --to access.json",),
        "acl why": ("roquet acl why alice Pub Topic:orders --source 10.0.0.9",),
        "acl user list": ("roquet acl user list",),
        "acl user create": (
            "roquet acl user create alice --generate",
            "roquet acl user create admin --password-file admin.txt --super",
        ),
        "acl user update": ("roquet acl user update alice --disable",),
        "acl user delete": ("roquet acl user delete alice",),
        "acl policy list": ("roquet acl policy list --resource Topic:orders",),
        "acl policy create": (
            "roquet acl policy create alice --resource Topic:orders --action Pub",
        ),
        "acl policy update": (
            "roquet acl policy update alice --resource Topic:orders --action Pub --deny",
        ),
        "acl policy delete": ("roquet acl policy delete alice --resource Topic:orders",),
        "dump": ("roquet dump roquet-data/config/topics.json",),
        "check": ("roquet check roquet-data",),
        "health": ("roquet health", "roquet health 10.0.0.5:5557 --wait 60"),
        "backup": ("roquet backup roquet-data backups --keep 7",),
        "restore": (
            "roquet restore backups restored",
            "roquet restore backups --check",
        ),
        "support bundle": ("roquet support bundle --data roquet-data --metrics 127.0.0.1:5557",),
        # Spark
        "spark archive": (
            "roquet spark archive orders lake/orders --once",
            "roquet spark archive orders s3://lake/orders --kind delta --every 60s",
        ),
        "spark lag": ("roquet spark lag lag --every 60s --for 1h",),
        "spark audit": ("roquet spark audit orders lake/orders --page audit.html",),
        "spark materialize": ("roquet spark materialize prices lake/prices --key property:sku",),
        "spark replay": ("roquet spark replay lake/orders orders-again --rate 500/s",),
        "spark repair": ("roquet spark repair billing lake/billing-letters",),
        "spark maintain": ("roquet spark maintain lake/orders --keep 30d --preview",),
        "lake query": (
            "roquet lake query 'SELECT count(*) FROM orders' --table orders=lake/orders",
        ),
        # trying out
        "demo": ("roquet demo", "roquet demo --html report.html --keep ./demo-data"),
        "balance": (
            "roquet balance --queues 8 --members 3",
            "roquet balance --queues 8 --members 3 --then leave --strategy AVG",
        ),
        "lab run": ("roquet lab run --scenario crash --histories 10_000 --out crash-lab",),
        "lab report": ("roquet lab report crash-lab --open",),
        "lab scenarios": ("roquet lab scenarios",),
    }
)
"""Examples by the command's words; each can be typed as it stands, with names of one's own."""
