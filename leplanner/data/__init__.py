"""Episodes on disk, their split, and the samplers that draw training windows from them."""
