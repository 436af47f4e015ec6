// tests/support/cuda/folded_rows.h: folded rows of a device, and codes and scales to fold.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "cuda/operands/fold.h"
#include "tests/support/cuda/memory.h"
#include "tests/support/random_bits.h"

namespace mxkern::test {

// Folded rows, copied from the device; what nobody wrote shows.
struct Folded {
  cuda::RowScaledLayout layout;
  std::vector<std::uint8_t> bytes;

  explicit Folded(const Shape& shape)
      : layout(cuda::folded_layout(shape)), bytes(static_cast<std::size_t>(layout.bytes), 0xCD) {}

  template <class Fill>
  void fill_on_device(Fill&& fill) {
    DeviceBytes memory(bytes.size());
    check_cuda(cudaMemcpy(memory.data(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
    fill(memory.data());
    check_cuda(cudaMemcpy(bytes.data(), memory.data(), bytes.size(), cudaMemcpyDeviceToHost));
  }
  std::uint8_t code(std::int64_t batch, std::int64_t row, std::int64_t column) const {
    return bytes[static_cast<std::size_t>(batch * layout.batch_bytes + row * layout.row_bytes +
                                          column)];
  }
  std::int32_t exponent(std::int64_t index) const {
    std::int32_t value;
    std::memcpy(&value, bytes.data() + layout.exponents + index * 4, sizeof value);
    return value;
  }
  int spread(std::int64_t index) const {
    return bytes[static_cast<std::size_t>(layout.spreads + index)];
  }
};

// Random codes under scales that lie `spread` octaves apart, with zero blocks and poisoned ones.
// Whatever belongs to no element holds ones.
inline void fill(Quantized& q, int spread, RandomBits& random) {
  const std::int64_t row_bytes = code_row_bytes(q.view.scheme, q.view.shape.columns);
  const SchemeFacts facts = facts_of(q.view.scheme);
  const ScaleIndex index = q.view.scale_index();
  std::fill_n(q.scales.data(), q.scales.size(), std::uint8_t{0xFF});
  for (std::int64_t i = 0; i < q.codes.size(); ++i) {
    q.codes.data()[i] = static_cast<std::uint8_t>(random.next());
  }
  for (std::int64_t i = 0; i < q.view.shape.batch * q.view.shape.rows; ++i) {
    const int lowest = random.between(0, 254 - spread);
    for (std::int64_t block = 0; block < index.blocks; ++block) {
      const int byte =
          random.between(0, 40) == 0 ? E8M0::nan_byte : lowest + random.between(0, spread);
      q.scales.data()[i / q.view.shape.rows * index.size() +
                      index.offset(i % q.view.shape.rows, block)] = static_cast<std::uint8_t>(byte);
      if (random.between(0, 7) != 0) continue;
      const std::int64_t begin = block * facts.block_bytes;
      const std::int64_t count = std::min<std::int64_t>(facts.block_bytes, row_bytes - begin);
      std::fill_n(q.codes.data() + i * row_bytes + begin, count, std::uint8_t{0});
    }
  }
}

}  // namespace mxkern::test
