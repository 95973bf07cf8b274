"""Codecs: how a gradient is written in fewer bytes for its way to the server, one file each.

codec = codec_of("top_k(share=0.01)")
encoder = codec.encoder(gradient.numel(), gradient.dtype)      # a worker has one for each slice
encoder.encode(gradient, out)                                  # codec.nbytes(...) bytes, always as many
codec.decode(out, row)                                         # at the server, which keeps nothing
"""

from paceline.params.codecs.base import Codec, CodecError, Encoder
from paceline.params.codecs.expression import CODECS, codec_of

__all__ = ["CODECS", "Codec", "CodecError", "Encoder", "codec_of"]
