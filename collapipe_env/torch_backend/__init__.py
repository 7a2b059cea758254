"""The vector environment on PyTorch tensors: the same physics, thousands of environments on one GPU.

Importing it imports PyTorch; ``import collapipe_env`` does not.
"""

from collapipe_env.torch_backend.env import CollaPipeTorchVectorEnv

__all__ = ["CollaPipeTorchVectorEnv"]
