"""Entries of a Delta log as other engines write them: deletion vectors and column mapping."""

import json
import struct
from pathlib import Path
from typing import Any

from deltalake import DeltaTable as Log
from deltalake import TableFeatures

from roquet.lake.kinds.delta.storage import LOG

Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def deletion_vector(*rows: int) -> dict[str, Any]:
    """A deletion vector in the log itself: a roaring bitmap of one container."""
    container = struct.pack(f"<IIHHI{len(rows)}H", 12346, 1, 0, len(rows) - 1, 16, *rows)
    data = struct.pack("<IQI", 1681511377, 1, 0) + container
    data += bytes(-len(data) % 4)
    digits = "".join(
        Z85[word // 85**power % 85]
        for (word,) in struct.iter_unpack(">I", data)
        for power in (4, 3, 2, 1, 0)
    )
    return {
        "storageType": "i",
        "pathOrInlineDv": digits,
        "sizeInBytes": len(data),
        "cardinality": len(rows),
    }


def actions(root: Path, kind: str) -> list[dict[str, Any]]:
    """The actions of one kind in all entries, oldest first."""
    entries = sorted((root / LOG).glob("*.json"))
    lines = (json.loads(line) for path in entries for line in path.read_text().splitlines())
    return [line[kind] for line in lines if kind in line]


def add_entry(root: Path, *changes: dict[str, Any]) -> None:
    """Add the next entry to the log."""
    text = "\n".join(json.dumps(change) for change in changes)
    (root / LOG / f"{Log(str(root)).version() + 1:020}.json").write_text(text)


def allow_deletion_vectors(root: Path) -> None:
    """Give a table the feature, without a deletion vector."""
    Log(str(root)).alter.add_feature(
        TableFeatures.DeletionVectors, allow_protocol_versions_increase=True
    )


def delete_rows(root: Path, path: str, *rows: int) -> None:
    """Delete rows of a file by a deletion vector; the file keeps its name."""
    added = next(each for each in actions(root, "add") if each["path"] == path)
    gone = {"path": path, "deletionTimestamp": 1, "dataChange": True}
    entry = {**added, "dataChange": True, "deletionVector": deletion_vector(*rows)}
    add_entry(root, {"remove": gone}, {"add": entry})


def map_columns(root: Path) -> None:
    """Turn on column mapping; columns that are there keep their names in the files."""
    metadata = actions(root, "metaData")[-1]
    schema = json.loads(metadata["schemaString"])
    for number, field in enumerate(schema["fields"], 1):
        field["metadata"] = {
            "delta.columnMapping.id": number,
            "delta.columnMapping.physicalName": field["name"],
        }
    metadata |= {
        "schemaString": json.dumps(schema),
        "configuration": {
            "delta.columnMapping.mode": "name",
            "delta.columnMapping.maxColumnId": str(len(schema["fields"])),
        },
    }
    protocol = {"minReaderVersion": 2, "minWriterVersion": 5}
    add_entry(root, {"protocol": protocol}, {"metaData": metadata})


def age(root: Path) -> None:
    """Make the log that of an earlier Roquet: ranges of four columns, no nulls, no property."""
    for path in (root / LOG).glob("*.json"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            if "add" in line:
                stats = {**json.loads(line["add"]["stats"]), "nullCount": {}}
                line["add"]["stats"] = json.dumps({"minValues": {}, "maxValues": {}, **stats})
            if "metaData" in line:
                line["metaData"]["configuration"] = {}
        path.write_text("\n".join(map(json.dumps, lines)))
