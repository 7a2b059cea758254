"""The Transformer that is really trained: blocks, embeddings, decoder, adapters, published checkpoints."""
