"""Changes to what keeps files of others harmless: names, weights, sizes, patterns, templates, option files."""

from .catalogue import Mutant, change

DECLARED, SHARDS, SIZES = "engine/checkpoint_options.py", "models/shards.py", "models/sizes.py"
YAML = "cli/yaml_file.py"

MUTANTS: tuple[Mutant, ...] = (
    change("a folder's strategy may be any path", DECLARED, "    if not shelf.is_known(declared):\n", "    if False:\n"),
    change("a folder's options are not looked up", DECLARED, "        if option not in known:\n", "        if False:\n"),
    change("an index may name files of other folders", SHARDS, "Path(file).name != file or ", ""),
    change("tensors may overlap", SHARDS, "        if stored.offset != end:\n", "        if stored.offset > end:\n"),
    change("gaps between tensors are left", SHARDS, "        if stored.offset != end:\n", "        if stored.offset < end:\n"),
    change("bytes may follow the last tensor", SHARDS, "    if size != end:\n", "    if False:\n"),
    change("a tensor may have data of another size", SHARDS, " or end - begin != needed:", ":"),
    change("shards may hold what the index does not name", SHARDS, "sorted(set(found) - set(where))", "()"),
    change("ends of sequence may be texts", SIZES, "not isinstance(end, int) or isinstance(end, bool)", "False"),
    change("ends of sequence may be ids that no row embeds", SIZES, "not 0 <= index < embedded", "index < 0"),
    change("there may be a single position", SIZES, " or text.max_position_embeddings < 2", ""),
    change("numbers of the rotary embedding may be infinite", SIZES, "not isfinite(value)", "False"),
    change("an activation may be any name", SIZES, " or value not in ACT2FN", ""),
    change("layers may be as many as a file says", SIZES, "not value <= most", "False"),
    change(
        "JSON files may be of any size", "models/reading.py", "(size := path.stat().st_size) > LARGEST_JSON", "(size := 0) > 0"
    ),
    change(
        "templates may run for ever", "text/_template_worker.py", "dump_traceback_later(seconds,", "dump_traceback_later(9e3,"
    ),
    change("an option file may refer to itself", YAML, "isinstance(event, yaml.AliasEvent)", "False"),
    change("an option file may be nested at will", YAML, "if deep > DEEPEST:", "if False:"),
    change("an option file may import a module", YAML, "if isinstance(given, str) and any(", "if False and any("),
    change("pages may be more than there is memory", "engine/devices.py", "        if taken > room:\n", "        if False:\n"),
    change("a device that is not here may be named", "engine/devices.py", " >= found:", " >= 99:"),
)
