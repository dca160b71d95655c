"""Adapters as the library PEFT keeps them: ``adapter_config.json`` and ``adapter_model.safetensors``."""
