"""Runs every `test_…` function of a folder: `python cases.py FOLDER`. Says what failed and why, then
`# pass N` and `# fail N`, as Node's test runner does."""

import importlib
import pathlib
import sys
import time
import traceback


def main(folder):
    here = pathlib.Path(folder)
    sys.path.insert(0, str(here))
    passed = failed = 0
    for file in sorted(here.glob("*.py")):
        module = importlib.import_module(file.stem)
        for name, case in list(vars(module).items()):
            if not name.startswith("test_") or getattr(case, "__module__", None) != module.__name__:
                continue
            began = time.monotonic()
            try:
                case()
            except Exception:
                failed += 1
                print(f"not ok {file.stem}: {name[5:]}")
                traceback.print_exc(file=sys.stdout)
                continue
            passed += 1
            print(f"ok {file.stem}: {name[5:]} ({(time.monotonic() - began) * 1000:.0f} ms)")
    print(f"# pass {passed}\n# fail {failed}", flush=True)
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
