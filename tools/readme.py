"""Run the first Python example of a README, in an installation without any extra."""

import importlib.util
import re
import sys
from pathlib import Path

import directloss

block = re.search(r"^```python\n(.*?)^```", Path(sys.argv[1]).read_text(), re.DOTALL | re.MULTILINE)
assert block, f"{sys.argv[1]} has no example"
exec(block[1])
absent = [name for name in ("matplotlib", "rich", "joblib", "sklearn") if importlib.util.find_spec(name) is None]
print(f"ran the first example of {sys.argv[1]} with directloss {directloss.__version__} from {directloss.__path__[0]}")
print(f"not installed, and not missed: {', '.join(absent)}")
