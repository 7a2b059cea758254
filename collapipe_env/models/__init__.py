"""The trained Transformer: blocks, embeddings, decoder, adapters, published checkpoints."""
