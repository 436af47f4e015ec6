// ops/memory_pieces.h: working memory, handed out piece by piece.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mxkern/core/math.h"
#include "mxkern/gemm.h"

namespace mxkern {

// Hands out pieces one behind the other, each of which starts on as many bytes as any operation
// asks for. Without memory it only counts, and the pieces are null.
class MemoryPieces {
 public:
  static constexpr std::int64_t alignment = 256;

  explicit MemoryPieces(void* memory = nullptr) : memory_(static_cast<std::uint8_t*>(memory)) {}

  template <class T = std::uint8_t>
  T* take(std::int64_t count) {
    const std::int64_t at = bytes_;
    bytes_ += round_up(count * static_cast<std::int64_t>(sizeof(T)), alignment);
    return memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + at);
  }
  Workspace workspace(std::size_t bytes) { return {take(static_cast<std::int64_t>(bytes)), bytes}; }

  std::size_t bytes() const { return static_cast<std::size_t>(bytes_); }

 private:
  std::uint8_t* memory_;
  std::int64_t bytes_ = 0;
};

// A dense plain tensor of its own.
inline Buffer take_plain(MemoryPieces& pieces, DType dtype, const Shape& shape, Device device) {
  void* const data = pieces.take(shape.size() * static_cast<std::int64_t>(size_of(dtype)));
  return Buffer::dense(data, dtype, shape, device);
}

// A quantized tensor of its own.
inline BlockScaled take_quantized(MemoryPieces& pieces, Scheme scheme, const Shape& shape,
                                  Device device) {
  BlockScaled q{.scheme = scheme, .shape = shape, .device = device};
  const BlockScaled::Sizes sizes = BlockScaled::sizes(scheme, shape, q.scale_layout);
  q.codes = pieces.take(sizes.codes);
  q.scales = pieces.take(sizes.scales);
  if (sizes.tensor_scale > 0) q.tensor_scale = pieces.take<float>(1);
  return q;
}

}  // namespace mxkern
