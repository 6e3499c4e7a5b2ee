"""treadle: share GPUs between online inference, training and batch work, by priority."""

from treadle.progress import report
from treadle.types import ModelContext, Priority, TensorSpec

__version__ = "0.1.0"

__all__ = ["ModelContext", "Priority", "TensorSpec", "__version__", "report"]
