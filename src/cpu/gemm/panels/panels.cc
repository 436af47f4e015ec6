// cpu/gemm/panels/panels.cc: weights into panels, and a row of them back.
#include "cpu/gemm/panels/panels.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "cpu/gemm/exact_sum.h"
#include "cpu/gemm/scale_row.h"
#include "cpu/gemm/panels/codes.h"
#include "cpu/runtime/parallel.h"
#include "mxkern/numerics/codec.h"
#include "mxkern/numerics/visit.h"
#include "mxkern/tensor/packing.h"

namespace mxkern::cpu {
namespace {

constexpr int rows = PanelLayout::rows, chunk = PanelLayout::chunk;

// The codes of a chunk, one a byte.
using Codes = std::array<std::uint8_t, chunk>;

template <int Bits>
void unpack(const std::uint8_t* row, std::int64_t k, std::int64_t end, Codes& codes) {
  codes.fill(0);
  const int count = static_cast<int>(std::min<std::int64_t>(chunk, end - k));
  const std::uint8_t* bytes = row + k * Bits / 8;
  for (int i = 0; i < count; ++i) {
    const int bit = i * Bits;
    unsigned code = static_cast<unsigned>(bytes[bit / 8]) >> bit % 8;
    if (bit % 8 + Bits > 8) code |= static_cast<unsigned>(bytes[bit / 8 + 1]) << (8 - bit % 8);
    codes[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(code & ((1u << Bits) - 1));
  }
}

template <int Bits>
void pack(const Codes& codes, int count, std::uint8_t* row, std::int64_t k) {
  std::uint8_t* bytes = row + k * Bits / 8;
  for (int i = 0; i < count; ++i) {
    const int bit = i * Bits;
    const unsigned code = codes[static_cast<std::size_t>(i)];
    bytes[bit / 8] = static_cast<std::uint8_t>(bytes[bit / 8] | code << bit % 8);
    if (bit % 8 + Bits > 8) {
      bytes[bit / 8 + 1] = static_cast<std::uint8_t>(bytes[bit / 8 + 1] | code >> (8 - bit % 8));
    }
  }
}

template <int Bits>
void put_codes(const Codes& codes, int row, std::uint8_t* chunk_codes) {
  if constexpr (Bits == 8) {
    for (int i = 0; i < chunk; ++i) {
      chunk_codes[panel_byte(i, row)] = codes[static_cast<std::size_t>(i)];
    }
  } else {
    std::uint32_t words[Bits] = {};
    for (int i = 0; i < chunk; ++i) {
      const unsigned code = codes[static_cast<std::size_t>(i)];
      visit_panel_places<Bits>(i, [&](PanelPlace p) {
        words[p.word] |= (code >> p.from & ((1u << p.bits) - 1)) << p.to;
      });
    }
    for (int w = 0; w < Bits; ++w) {
      std::memcpy(chunk_codes + (w * rows + row) * 4, &words[w], sizeof words[w]);
    }
  }
}

template <int Bits>
void get_codes(const std::uint8_t* chunk_codes, int row, Codes& codes) {
  for (int i = 0; i < chunk; ++i) {
    codes[static_cast<std::size_t>(i)] = panel_code<Bits>(chunk_codes, i, row);
  }
}

template <class Format>
constexpr std::array<bool, 256> nan_codes() {
  std::array<bool, 256> are_nan{};
  for (unsigned code = 0; code < 1u << Format::bits; ++code) {
    const float value = decode<Format>(static_cast<std::uint8_t>(code));
    are_nan[code] = value != value;
  }
  return are_nan;
}

template <class S>
void fill_row(const GemmMatrix& matrix, std::int64_t row, const PanelLayout& layout,
              std::uint8_t* panel) {
  using Format = typename S::Format;
  const int place = static_cast<int>(row % rows);
  const std::uint8_t* data = matrix.data + row * matrix.row_bytes;
  bool has_nan = false;
  for (std::int64_t k = 0; k < matrix.k; k += chunk) {
    Codes codes;
    unpack<Format::bits>(data, k, matrix.k, codes);
    if constexpr (Format::has_nan) {
      static constexpr std::array<bool, 256> are_nan = nan_codes<Format>();
      for (const std::uint8_t code : codes) has_nan |= are_nan[code];
    }
    std::uint8_t* group =
        panel + PanelLayout::facts_bytes + k / PanelLayout::group * layout.group_bytes;
    put_codes<Format::bits>(
        codes, place,
        group + layout.scale_bytes + k % PanelLayout::group / chunk * layout.chunk_bytes);
  }
  const ScaleRow scales(matrix, row);
  constexpr std::int64_t group_blocks = PanelLayout::group / S::block;
  for (std::int64_t block = 0; block < matrix.scale_index.blocks; ++block) {
    std::uint8_t byte = scales.byte(block);
    if constexpr (!S::ScaleFormat::is_power_of_two) byte &= S::ScaleFormat::nan_byte;  // no sign
    has_nan |= byte == S::ScaleFormat::nan_byte;
    panel[PanelLayout::facts_bytes + block / group_blocks * layout.group_bytes +
          block % group_blocks * rows + place] = byte;
  }
  if (has_nan) {
    reinterpret_cast<PanelFacts*>(panel)->factor[place] = std::numeric_limits<float>::quiet_NaN();
  }
}

// Their spreads as they are: where scales alone are too far apart, codes are looked at.
void fill_facts(const GemmMatrix& matrix, std::int64_t first, std::int64_t count,
                PanelFacts& facts) {
  std::fill_n(facts.factor, rows, 1.0f);
  std::fill_n(facts.shift, rows, 0);
  std::fill_n(facts.spread, rows, settled_row);
  gemm_kernels(GemmUnit::baseline).row_shifts(matrix, first, count, facts.shift, facts.spread);
  for (std::int64_t i = 0; i < count; ++i) {
    if (may_lose_products(facts.spread[i], facts.spread[i])) {
      facts.spread[i] = row_spread(matrix, first + i);
    }
  }
}

}  // namespace

bool reads_panels() {
  const CpuGemmCapabilities capabilities = gemm_capabilities_of_machine();
  for (const GemmUnit unit : all_gemm_units) {
    if (mxkern::reads_panels(unit) && capabilities.runs(unit)) return true;
  }
  return false;
}

void fill_panels(const GemmMatrix& matrix, std::uint8_t* panels) {
  const PanelLayout layout(matrix.scheme, matrix.rows, matrix.k);
  const std::int64_t elements = std::max<std::int64_t>(matrix.k, 1) * rows;
  constexpr std::int64_t fewest_elements = 64 * 1024;  // that are worth a thread
  parallel_for(layout.panels, ceil_div(fewest_elements, elements),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i) {
                   std::uint8_t* panel = panels + i * layout.panel_bytes;
                   std::memset(panel, 0, static_cast<std::size_t>(layout.panel_bytes));
                   const std::int64_t first = i * rows;
                   const std::int64_t count = std::min<std::int64_t>(rows, matrix.rows - first);
                   fill_facts(matrix, first, count, *reinterpret_cast<PanelFacts*>(panel));
                   if (matrix.k == 0) continue;  // there are no codes and scales
                   visit(matrix.scheme, [&](auto scheme) {
                     for (std::int64_t row = first; row < first + count; ++row) {
                       fill_row<decltype(scheme)>(matrix, row, layout, panel);
                     }
                   });
                 }
               });
}

GemmMatrix read_panel_row(const GemmMatrix& matrix, std::int64_t row, std::uint8_t* memory) {
  const PanelLayout layout(matrix.scheme, matrix.rows, matrix.k);
  const std::uint8_t* panel = matrix.panels + row / rows * layout.panel_bytes;
  const int place = static_cast<int>(row % rows);
  GemmMatrix one = matrix;
  one.panels = nullptr;
  one.rows = 1;
  one.data = memory;
  std::uint8_t* scales = memory + round_up(matrix.k, std::int64_t{PanelLayout::group});
  one.scales = scales;
  visit(matrix.scheme, [&](auto scheme) {
    using S = decltype(scheme);
    const std::int64_t blocks = ceil_div(matrix.k, std::int64_t{S::block});
    one.scale_index = {1, blocks, ScaleLayout::row_major};
    std::memset(memory, 0, static_cast<std::size_t>(code_row_bytes(matrix.scheme, matrix.k)));
    for (std::int64_t k = 0; k < matrix.k; k += chunk) {
      const std::uint8_t* group =
          panel + PanelLayout::facts_bytes + k / PanelLayout::group * layout.group_bytes;
      Codes codes;
      get_codes<S::Format::bits>(
          group + layout.scale_bytes + k % PanelLayout::group / chunk * layout.chunk_bytes, place,
          codes);
      pack<S::Format::bits>(codes, static_cast<int>(std::min<std::int64_t>(chunk, matrix.k - k)),
                            memory, k);
    }
    constexpr std::int64_t group_blocks = PanelLayout::group / S::block;
    for (std::int64_t block = 0; block < blocks; ++block) {
      scales[block] = panel[PanelLayout::facts_bytes + block / group_blocks * layout.group_bytes +
                            block % group_blocks * rows + place];
    }
  });
  return one;
}

}  // namespace mxkern::cpu
