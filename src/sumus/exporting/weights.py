"""A model's tensors as a safetensors file, with everything that a prediction needs in its header."""

from __future__ import annotations

import importlib

from sumus.errors import DataError
from sumus.predicting import Model

__all__ = ["safetensors_bytes"]


def safetensors_bytes(model: Model) -> bytes:
    """Tensors by their names in the module; `model.json` and the plan stand in the metadata."""
    try:
        save = importlib.import_module("safetensors.torch").save
    except ImportError:
        raise DataError(
            "--format safetensors needs safetensors. Run: pip install 'sumus[export]'"
        ) from None
    tensors = {
        name: tensor.detach().cpu().clone().contiguous()
        for name, tensor in model.module.state_dict().items()
    }
    metadata = {
        "format": "pt",
        "sumus.model": model.facts.to_bytes().decode(),
        "sumus.plan": model.plan.to_toml(),
        "sumus.guarantee": f"VOID: {model.void}" if model.void else "see the model card",
    }
    content: bytes = save(tensors, metadata=metadata)
    return content
