// fuzz/dequantize_fuzzer.cc: any codes and scales decode to what the numerics say, and to no crash.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "fuzz/arbitrary.h"

namespace {

using namespace mxkern;

// The code of one element, bit by bit.
std::uint8_t code_at(const BlockScaled& q, int bits, std::int64_t row, std::int64_t column) {
  const std::uint8_t* codes = q.codes + row * code_row_bytes(q.scheme, q.shape.columns);
  std::uint8_t code = 0;
  for (int bit = 0; bit < bits; ++bit) {
    const std::int64_t at = column * bits + bit;
    code |= static_cast<std::uint8_t>(((codes[at / 8] >> (at % 8)) & 1) << bit);
  }
  return code;
}

float expected_at(const BlockScaled& q, std::int64_t row, std::int64_t column) {
  return visit(q.scheme, [&]<class S>(S) {
    const ScaleIndex index = q.scale_index();
    const std::int64_t matrix = row / q.shape.rows;
    const std::uint8_t scale =
        q.scales[matrix * index.size() + index.offset(row % q.shape.rows, column / S::block)];
    const float element = decode<typename S::Format>(code_at(q, S::Format::bits, row, column));
    return element_value<S>(element, S::ScaleFormat::decode(scale),
                            S::has_tensor_scale ? *q.tensor_scale : 1.0f);
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const Shape shape{input.below(3), input.below(70), input.below(140)};
  fuzz::ArbitraryBlockScaled q(input, shape);

  std::vector<float> out(shape.size());
  dequantize(q.view, Buffer::dense(out.data(), DType::float32, shape));
  for (std::int64_t row = 0; row < shape.batch * shape.rows; ++row) {
    for (std::int64_t column = 0; column < shape.columns; ++column) {
      const float got = out[row * shape.columns + column];
      const float expected = expected_at(q.view, row, column);
      const bool both_nan = got != got && expected != expected;
      if (!both_nan && std::memcmp(&got, &expected, sizeof(float)) != 0) {
        std::fprintf(stderr, "%s row %lld column %lld: got %a, expected %a\n",
                     name_of(q.view.scheme), static_cast<long long>(row),
                     static_cast<long long>(column), got, expected);
        std::abort();
      }
    }
  }

  fuzz::ArbitraryBuffer other(input, shape);
  dequantize(q.view, other.view);
  return 0;
}
