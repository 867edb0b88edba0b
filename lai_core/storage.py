"""The name that `lai_storage` had before it left the core; the next release is without it."""

import sys
import warnings
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from lai_storage import load as load
from lai_storage import save as save
from lai_storage import storable as storable

OLD, NEW = __name__, "lai_storage"


class _Moved(MetaPathFinder, Loader):
    """Gives each module of `lai_storage` its old name beside the new one."""

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name.startswith(f"{OLD}.") else None

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = import_module(module.__name__.replace(OLD, NEW))


message = f"{OLD} is now {NEW}, with modules of the same names; the next release is without the old name"
warnings.warn(message, DeprecationWarning, stacklevel=2)
sys.meta_path.insert(0, _Moved())
sys.modules[OLD] = sys.modules[NEW]
