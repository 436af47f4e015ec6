// fuzz/arbitrary.h: shapes, options and tensors out of a fuzzer's bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "mxkern/mxkern.h"

namespace mxkern::fuzz {

// Reads the input from its start; what lies beyond its end repeats it, and an empty one is zeros.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}

  std::uint8_t byte() { return size_ == 0 ? 0 : data_[at_++ % size_]; }
  std::int64_t below(int bound) { return (byte() + 256 * byte()) % bound; }

  template <class T, std::size_t Count>
  T pick(const T (&choices)[Count]) {
    return choices[byte() % Count];
  }

  template <class T>
  std::vector<T> values(std::int64_t count) {
    std::vector<T> result(count);
    auto* bytes = reinterpret_cast<std::uint8_t*>(result.data());
    for (std::size_t i = 0; i < count * sizeof(T); ++i) bytes[i] = byte();
    return result;
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
  std::size_t at_ = 0;
};

// A BlockScaled of any bytes. The vectors are as long as they must be, so that the address
// sanitizer sees each access that goes beyond.
struct ArbitraryBlockScaled {
  std::vector<std::uint8_t> codes;
  std::vector<std::uint8_t> scales;
  std::vector<float> tensor_scale;
  BlockScaled view;

  ArbitraryBlockScaled(Input& input, const Shape& shape) {
    view.scheme = input.pick(all_schemes);
    view.scale_layout = input.pick(all_scale_layouts);
    view.shape = shape;
    const auto sizes = BlockScaled::sizes(view.scheme, shape, view.scale_layout);
    codes = input.values<std::uint8_t>(sizes.codes);
    scales = input.values<std::uint8_t>(sizes.scales);
    tensor_scale = input.values<float>(sizes.tensor_scale > 0 ? 1 : 0);
    view.codes = codes.data();
    view.scales = scales.data();
    view.tensor_scale = tensor_scale.empty() ? nullptr : tensor_scale.data();
  }
};

// A plain tensor of any bytes.
struct ArbitraryBuffer {
  std::vector<std::uint8_t> bytes;
  Buffer view;

  ArbitraryBuffer(Input& input, const Shape& shape) {
    const DType dtype = input.pick(all_dtypes);
    bytes = input.values<std::uint8_t>(shape.size() * static_cast<std::int64_t>(size_of(dtype)));
    view = Buffer::dense(bytes.data(), dtype, shape);
  }
};

}  // namespace mxkern::fuzz
