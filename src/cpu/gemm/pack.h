// cpu/gemm/pack.h: elements and scales to panels, in the order in which a unit reads them.
#pragma once

#include <cstdint>
#include <cstring>
#include <new>
#include <type_traits>

#include "cpu/gemm/elements.h"
#include "cpu/gemm/panels/pack.h"
#include "cpu/gemm/shifts.h"
#include "cpu/kernels/transpose.h"
#include "mxkern/numerics/visit.h"

namespace mxkern::cpu {
namespace {

// Calls visitor with a tag of the scheme, or of the element type of a plain matrix.
template <class Visitor>
[[gnu::always_inline]] inline void visit_elements(const GemmMatrix& matrix, Visitor&& visitor) {
  if (matrix.is_plain) {
    visit(matrix.dtype, visitor);
  } else {
    visit(matrix.scheme, [&](auto scheme) { visitor(TypeTag<decltype(scheme)>{}); });
  }
}

// Rows lie far apart, in pages of their own: hardware does not see the next one coming. The L2
// cache should have it by the time it is packed.
template <class Elements>
[[gnu::always_inline]] inline void prefetch_row(const GemmMatrix& matrix, const GemmPanel& panel,
                                                std::int64_t row) {
  constexpr int bits = StoredElements<Elements>::bits;
  if (row >= matrix.rows) return;
  const std::uint8_t* data = matrix.data + row * matrix.row_bytes + panel.k * bits / 8;
  const int bytes = panel.chunks * gemm_chunk * bits / 8;
  for (int i = 0; i < bytes; i += 64) __builtin_prefetch(data + i, 0, 2);
}

// A row from one k on, chunk by chunk.
template <class Elements>
struct RowReader {
  static constexpr int bits = StoredElements<Elements>::bits;
  static constexpr int chunk_bytes = gemm_chunk * bits / 8;

  const std::uint8_t* data;
  std::int64_t elements;  // until the end of the row
  RowMultipliers<Elements> multipliers;

  RowReader(const GemmMatrix& matrix, std::int64_t row, std::int64_t k, int chunks,
            std::int32_t shift)
      : data(matrix.data + row * matrix.row_bytes + k * bits / 8),
        elements(matrix.k - k),
        multipliers(matrix, row, k, chunks, shift) {}

  // Calls use(first, pairs) for each step of the chunk.
  template <class Use>
  [[gnu::always_inline]] void read(int chunk, Use&& use) const {
    const std::int64_t rest = elements - static_cast<std::int64_t>(chunk) * gemm_chunk;
    const std::uint8_t* bytes = data + static_cast<std::int64_t>(chunk) * chunk_bytes;
    if (rest >= gemm_chunk) [[likely]] {
      read_whole(chunk, bytes, use);
    } else {
      const ChunkTail<bits> tail(bytes, static_cast<int>(rest));
      read_whole(chunk, tail.bytes, use);
    }
  }

  template <class Use>
  [[gnu::always_inline]] void read_whole(int chunk, const std::uint8_t* bytes, Use&& use) const {
    for (int first = 0; first < gemm_chunk; first += step) {
      const FloatPairs pairs = StoredElements<Elements>::load(bytes + first * bits / 8);
      const FloatLanes multiplier = multipliers.of(chunk, first);
      use(first, FloatPairs{pairs.even * multiplier, pairs.odd * multiplier});
    }
  }
};

// What a bfloat16 leaves of a value; nothing where the value is not finite.
[[gnu::always_inline]] inline FloatLanes remainder(FloatLanes value) {
  const BitLanes upper = bits_of(value) & 0xFFFF0000u;
  const FloatLanes rest = value - float_of<BitLanes>(upper);
  return (upper & float32::exponent_mask) == broadcast<BitLanes>(float32::exponent_mask)
             ? broadcast<FloatLanes>(0.0f)
             : rest;
}

inline constexpr int rows_ahead = 8;

template <bool Bfloat16, class Elements>
void pack_left_rows(const GemmMatrix& matrix, const GemmPanel& panel, const std::int32_t* shifts,
                    std::uint8_t* out) {
  constexpr int element_bytes = Bfloat16 ? 2 : 4;
  constexpr int row_bytes = gemm_chunk * element_bytes;
  const std::int64_t part_bytes = static_cast<std::int64_t>(panel.tile) * row_bytes;
  const std::int64_t chunk_bytes = part_bytes * panel.parts;
  for (std::int64_t i = 0; i < panel.rows; ++i) {
    std::uint8_t* row_out =
        out + i / panel.tile * panel.chunks * chunk_bytes + i % panel.tile * row_bytes;
    if (panel.row + i >= matrix.rows) {
      for (int j = 0; j < panel.chunks * panel.parts; ++j) {
        std::memset(row_out + j * part_bytes, 0, row_bytes);
      }
      continue;
    }
    prefetch_row<Elements>(matrix, panel, panel.row + i + rows_ahead);
    const RowReader<Elements> row(matrix, panel.row + i, panel.k, panel.chunks, shifts[i]);
    for (int chunk = 0; chunk < panel.chunks; ++chunk) {
      std::uint8_t* chunk_out = row_out + chunk * chunk_bytes;
      row.read(chunk, [&](int first, FloatPairs pairs) {
        std::uint8_t* to = chunk_out + first * element_bytes;
        if constexpr (Bfloat16) {
          store_vector(to, join(pairs));
          for (int part = 1; part < panel.parts; ++part) {
            pairs = {remainder(pairs.even), remainder(pairs.odd)};
            store_vector(to + part * part_bytes, join(pairs));
          }
        } else {
          store_vector(to, pairs.even);
          store_vector(to + sizeof(FloatLanes), pairs.odd);
        }
      });
    }
  }
}

// lane_count rows of a right operand become columns: units of 32 bits, a pair of bfloat16 or a
// float32, are transposed in registers.
template <bool Bfloat16, class Elements>
void pack_right_columns(const GemmMatrix& matrix, const GemmPanel& panel, std::int64_t first_row,
                        const std::int32_t* shifts, std::uint8_t* out) {
  const std::int64_t rest = matrix.rows - first_row;
  const int rows = rest < lane_count ? static_cast<int>(rest) : lane_count;
  const std::int64_t k_bytes = panel.tile * 4;
  // Readers of the rows that exist; beyond them the first one's elements are cleared.
  alignas(RowReader<Elements>) unsigned char storage[lane_count * sizeof(RowReader<Elements>)];
  RowReader<Elements>* readers = reinterpret_cast<RowReader<Elements>*>(storage);
  for (int i = 0; i < rows; ++i) {
    prefetch_row<Elements>(matrix, panel, first_row + i + panel.tile);
    new (readers + i) RowReader<Elements>(matrix, first_row + i, panel.k, panel.chunks, shifts[i]);
  }
  constexpr int units = Bfloat16 ? 1 : 2;  // vectors of a step
  constexpr int vectors = gemm_chunk / step * units;
  for (int chunk = 0; chunk < panel.chunks; ++chunk) {
    BitLanes lanes[vectors][lane_count];
    for (int i = 0; i < lane_count; ++i) {
      if (i >= rows) {
        for (int v = 0; v < vectors; ++v) lanes[v][i] = broadcast<BitLanes>(0u);
        continue;
      }
      readers[i].read(chunk, [&](int first, FloatPairs pairs) {
        const int v = first / step * units;
        if constexpr (Bfloat16) {
          lanes[v][i] = join(pairs);
        } else {
          lanes[v][i] = bits_of(pairs.even);
          lanes[v + 1][i] = bits_of(pairs.odd);
        }
      });
    }
    for (int v = 0; v < vectors; ++v) {
      transpose_square(lanes[v]);
      for (int i = 0; i < lane_count; ++i) {
        store_vector(out, lanes[v][i]);
        out += k_bytes;
      }
    }
  }
}

template <bool Bfloat16>
void pack_left(const GemmMatrix& matrix, const GemmPanel& panel, const std::int32_t* shifts,
               void* out) {
  visit_elements(matrix, [&](auto tag) {
    pack_left_rows<Bfloat16, typename decltype(tag)::type>(matrix, panel, shifts,
                                                           static_cast<std::uint8_t*>(out));
  });
}

template <bool Bfloat16>
void pack_right(const GemmMatrix& matrix, const GemmPanel& panel, const std::int32_t* shifts,
                void* out) {
  const std::int64_t tile_bytes =
      static_cast<std::int64_t>(panel.tile) * panel.chunks * gemm_chunk * (Bfloat16 ? 2 : 4);
  const auto pack = [&]<class Elements>(TypeTag<Elements>) {
    for (std::int64_t i = 0; i < panel.rows; i += lane_count) {
      std::uint8_t* to =
          static_cast<std::uint8_t*>(out) + i / panel.tile * tile_bytes + i % panel.tile * 4;
      if constexpr (!std::is_same_v<Elements, bfloat16>) {
        if (matrix.panels != nullptr && panel.row + i < matrix.rows) {
          pack_panel_columns<Bfloat16, Elements>(matrix, panel, panel.row + i, to);
          continue;
        }
      }
      pack_right_columns<Bfloat16, Elements>(matrix, panel, panel.row + i, shifts + i, to);
    }
  };
  if (matrix.is_plain) return pack(TypeTag<bfloat16>{});
  visit(matrix.scheme, [&](auto scheme) { pack(TypeTag<decltype(scheme)>{}); });
}

void row_shifts(const GemmMatrix& matrix, std::int64_t row, std::int64_t count,
                std::int32_t* shifts, std::int32_t* spreads) {
  visit_elements(matrix, [&](auto tag) {
    for (std::int64_t i = 0; i < count; ++i) {
      const RowShift one = row_shift<typename decltype(tag)::type>(matrix, row + i);
      shifts[i] = one.shift;
      spreads[i] = one.spread;
    }
  });
}

}  // namespace
}  // namespace mxkern::cpu
