// mxkern/kernels/quantize/tile/quantize.cuh: a tile through shared memory: blocks along the columns
// of x, along both directions in one read, and square blocks.
#pragma once

#include <cstdint>

#include "mxkern/kernels/device/follows.h"
#include "mxkern/kernels/quantize/octet.cuh"
#include "mxkern/tensor/scale_layout.h"

namespace mxkern::kernels {

// One direction of the result.
struct TileOutput {
  std::uint8_t* codes;  // null: this direction is not wanted
  std::int64_t code_row_bytes;
  std::uint8_t* scales;
  ScaleIndex scale_index;
  float* tensor_scale;
  OctetOptions options;
  bool vector_stores;  // lines of codes begin on 16 bytes
  bool octet_stores;   // on what store_whole_codes asks for
};

struct QuantizeTileParameters {
  const void* x;
  std::int64_t batch, rows, columns;
  std::int64_t batch_stride, row_stride;
  TileOutput along_rows;
  TileOutput along_columns;
  bool square;
  bool vector_loads;
  bool backwards;
  bool words_differ;    // both directions are wanted, with random words of their own
  int fetching_blocks;  // how many thread blocks ask for their first tile while the kernel ahead
                        // runs
  Follows follows;
  std::int64_t first_down, first_across;  // tiles before these are not the kernel's
  // What a Hadamard transform of 16 or 32 along the columns flips in the words of 32 rows, and what
  // one of 16 multiplies with: signs, and its factor.
  std::uint32_t column_signs[32];
  float column_factors[16];
};

// What a tile kernel is compiled for. The code of rare options costs registers, and the instruction
// cache, even where it does not run.
enum class TileKind { plain, any };

// The options of one direction as a kernel for some work knows them.
template <TileKind W>
__device__ __forceinline__ OctetOptions known_tile_options(const OctetOptions& options) {
  OctetOptions known = options;
  if constexpr (W == TileKind::plain) {
    known.four_over_six = false;
    known.hadamard_size = 0;
  }
  return known;
}

inline constexpr int tile_extent = 128;
inline constexpr int tile_threads = 256;
inline constexpr int tile_octets = tile_extent / 8;  // of a row of the tile
inline constexpr int tile_segment = 32;  // rows of the two columns that one thread takes

// Where one tile lies, and how much of x is left from there on, at most a tile. The grid has a
// thread block for every tile across (x), down (y) and matrix (z); y and z wrap around where the
// grid would be too large.
struct TilePosition {
  std::int64_t batch, row, column;
  int rows_left, columns_left;

  __device__ __forceinline__ TilePosition(const QuantizeTileParameters& p, std::int64_t batch_index,
                                          std::int64_t down, std::int64_t across)
      : batch(batch_index), row(down * tile_extent), column(across * tile_extent) {
    rows_left = static_cast<int>(lower_of<std::int64_t>(p.rows - row, tile_extent));
    columns_left = static_cast<int>(lower_of<std::int64_t>(p.columns - column, tile_extent));
  }

  __device__ __forceinline__ bool is_whole() const {
    return rows_left == tile_extent && columns_left == tile_extent;
  }
};

// The codes of the transpose in shared memory: a line a column of x. Chunks are as wide as a store;
// those of 16 bytes are permuted within a line so that threads of adjacent columns meet other
// banks.
template <class S>
struct TileLines {
  static constexpr int line_bytes = tile_extent * S::Format::bits / 8;
  static constexpr int chunk_bytes = S::Format::bits == 6 ? 8 : 16;
  static constexpr int chunks = line_bytes / chunk_bytes;
  static constexpr int pitch = S::Format::bits == 6 ? line_bytes + 8 : line_bytes;
  static constexpr int bytes = round_up(tile_extent * pitch, 16);

  __device__ static int offset(int line, int chunk) {
    if constexpr (chunk_bytes == 16) chunk ^= line / 2 % chunks;
    return line * pitch + chunk * chunk_bytes;
  }
};

// Stores the codes of one block of a column, starting at `row` of the tile.
template <class S, int Octets>
__device__ __forceinline__ void store_line_segment(std::uint8_t* lines, int line, int row,
                                                   const Octet (&codes)[Octets]) {
  using Lines = TileLines<S>;
  constexpr int octet_bytes = S::Format::bits;
  constexpr int words = Octets * octet_bytes / 4;
  std::uint32_t word[words];
#pragma unroll
  for (int i = 0; i < Octets; ++i) {
    if constexpr (octet_bytes == 4) {
      word[i] = static_cast<std::uint32_t>(codes[i]);
    } else if constexpr (octet_bytes == 8) {
      word[2 * i] = static_cast<std::uint32_t>(codes[i]);
      word[2 * i + 1] = static_cast<std::uint32_t>(codes[i] >> 32);
    } else if (i % 2 == 0) {
      // 48 bits and 48 bits are three words.
      word[i / 2 * 3] = static_cast<std::uint32_t>(codes[i]);
      word[i / 2 * 3 + 1] = static_cast<std::uint32_t>(codes[i] >> 32) |
                            static_cast<std::uint32_t>(codes[i + 1] << 16);
      word[i / 2 * 3 + 2] = static_cast<std::uint32_t>(codes[i + 1] >> 16);
    }
  }
  const int byte = row / 8 * octet_bytes;
  if constexpr (words % 4 == 0 && Lines::chunk_bytes == 16) {
#pragma unroll
    for (int i = 0; i < words; i += 4) {
      *reinterpret_cast<uint4*>(lines + Lines::offset(line, byte / 16 + i / 4)) =
          make_uint4(word[i], word[i + 1], word[i + 2], word[i + 3]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < words; i += 2) {
      const int at = byte + 4 * i;
      *reinterpret_cast<uint2*>(lines + Lines::offset(line, at / Lines::chunk_bytes) +
                                at % Lines::chunk_bytes) = make_uint2(word[i], word[i + 1]);
    }
  }
}

// Shared memory of a tile: the elements, then scale bytes of both directions, then the codes of the
// transpose, or the float32 values of a Hadamard transform that spans threads.
template <class S, class T>
struct TileMemory {
  static constexpr int blocks = tile_extent / S::block;
  static constexpr int elements_bytes = tile_extent * tile_extent * static_cast<int>(sizeof(T));
  static constexpr int scales_bytes = tile_extent * blocks;
  static constexpr int lines_bytes = TileLines<S>::bytes;
  static constexpr int floats_bytes = tile_extent * tile_extent * 4;
  static constexpr int bytes(bool wide_hadamard) {
    return elements_bytes + scales_bytes + (wide_hadamard ? floats_bytes : lines_bytes);
  }

  unsigned char* base;
  __device__ T* elements() const { return reinterpret_cast<T*>(base); }
  __device__ std::uint8_t* scales() const { return base + elements_bytes; }
  __device__ std::uint8_t* lines() const { return base + elements_bytes + scales_bytes; }
  __device__ float* floats() const { return reinterpret_cast<float*>(lines()); }
};

template <class T>
__device__ __forceinline__ RawOctet<T> shared_octet(const T* p) {
  RawOctet<T> raw;
#pragma unroll
  for (int i = 0; i < RawOctet<T>::words / 4; ++i) {
    const uint4 part = reinterpret_cast<const uint4*>(p)[i];
    raw.word[4 * i] = part.x;
    raw.word[4 * i + 1] = part.y;
    raw.word[4 * i + 2] = part.z;
    raw.word[4 * i + 3] = part.w;
  }
  return raw;
}

// Rows of two adjacent columns, as they lie in shared memory.
template <class T, int Rows>
struct ColumnPair {
  static constexpr int width = sizeof(T) / 2;  // words a row
  std::uint32_t word[Rows * width];

  __device__ __forceinline__ void load(const T* elements, int row, int column) {
    const T* from = elements + row * tile_extent + column;
#pragma unroll
    for (int i = 0; i < Rows; ++i) {
      if constexpr (width == 2) {
        const uint2 pair = *reinterpret_cast<const uint2*>(from + i * tile_extent);
        word[2 * i] = pair.x;
        word[2 * i + 1] = pair.y;
      } else {
        word[i] = *reinterpret_cast<const std::uint32_t*>(from + i * tile_extent);
      }
    }
  }

  // The element of one row in column k, as float32.
  __device__ __forceinline__ float value(int i, int k) const {
    if constexpr (width == 2) {
      return float_of(word[2 * i + k]);
    } else if constexpr (dtype_of<T>::value == DType::bfloat16) {
      return float_of(k == 0 ? word[i] << 16 : word[i] & 0xFFFF0000u);
    } else {
      return __half2float(__ushort_as_half(static_cast<unsigned short>(word[i] >> (16 * k))));
    }
  }

  // The float32 bits of the largest magnitude of column k: of both at once for 16-bit elements.
  __device__ __forceinline__ std::uint32_t amax(int k) const {
    if constexpr (width == 2) {
      std::uint32_t amax = 0;
#pragma unroll
      for (int i = 0; i < Rows; ++i) amax = max(amax, word[2 * i + k] & float32::magnitude_mask);
      return amax;
    } else {
      std::uint32_t pairs = 0;
#pragma unroll
      for (int i = 0; i < Rows; i += 2) {
        pairs = __vimax3_u16x2(pairs, magnitudes_of<T>(word[i]), magnitudes_of<T>(word[i + 1]));
      }
      const std::uint32_t bits = k == 0 ? pairs & 0xFFFFu : pairs >> 16;
      if constexpr (dtype_of<T>::value == DType::bfloat16) return bits << 16;
      return bits_of(__half2float(__ushort_as_half(static_cast<unsigned short>(bits))));
    }
  }

  __device__ __forceinline__ void octet(int first, int k, float (&v)[8]) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = value(first + i, k);
  }

  // Transforms groups of `size` rows, which divides Rows, rounded to T. The first `rows_left` rows
  // are those of x: groups are there as a whole or not at all.
  __device__ __forceinline__ void hadamard(int size, const std::uint32_t* signs, int rows_left) {
    if (size == 16) {
#pragma unroll
      for (int first = 0; first < Rows; first += 16) {
        if (first < rows_left) group<16>(first, signs + first);
      }
    } else if constexpr (Rows == 32) {
      if (rows_left > 0) group<32>(0, signs);
    }
  }

 private:
  template <int Size>
  __device__ __forceinline__ void group(int first, const std::uint32_t* signs) {
    float v[2][Size];
#pragma unroll
    for (int i = 0; i < Size; ++i) {
#pragma unroll
      for (int part = 0; part < width; ++part) word[(first + i) * width + part] ^= signs[i];
      v[0][i] = value(first + i, 0);
      v[1][i] = value(first + i, 1);
    }
    hadamard_butterflies(v[0]);
    hadamard_butterflies(v[1]);
#pragma unroll
    for (int i = 0; i < Size; ++i) {
      const float a = __fmul_rn(v[0][i], hadamard_norm(Size));
      const float b = __fmul_rn(v[1][i], hadamard_norm(Size));
      if constexpr (width == 2) {
        word[2 * (first + i)] = bits_of(a);
        word[2 * (first + i) + 1] = bits_of(b);
      } else {
        word[first + i] = pack_pair<T>(a, b);
      }
    }
  }
};

// The squares of a tile, [blocks down][blocks across]: amax as float32 bits, and the scales of the
// direction that is worked on.
template <class S>
struct TileSquares {
  static constexpr int across = tile_extent / S::block;
  static constexpr int count = across * across;
  std::uint32_t amax[count];
  float multiplier[count];
  std::uint8_t byte[count];

  __device__ __forceinline__ void put(int square, std::uint32_t largest, BlockScale scale) {
    amax[square] = largest;
    multiplier[square] = scale.multiplier;
    byte[square] = scale.byte;
  }
};

// Writes the scale bytes of one direction, [128 lines][blocks of the tile], where they belong.
template <class S>
__device__ __forceinline__ void store_tile_scales(const TileOutput& out, std::int64_t batch,
                                                  std::int64_t line, std::int64_t block,
                                                  const std::uint8_t* scales) {
  constexpr int blocks = tile_extent / S::block;
  const bool swizzled = out.scale_index.layout == ScaleLayout::swizzled;
  const ScaleIndex& index = out.scale_index;
  std::uint8_t* to = out.scales + batch * index.size();
  if (swizzled && line + tile_extent <= index.rows && block + blocks <= index.blocks &&
      reinterpret_cast<std::uintptr_t>(to) % 4 == 0) {
    // The whole of one or two tiles of the layout, one behind the other.
    to += index.offset(line, block);
    for (unsigned i = threadIdx.x; i < tile_extent * blocks / 4; i += tile_threads) {
      const unsigned tile_line = i % 4 * 32 + i % tile_extent / 4;
      reinterpret_cast<std::uint32_t*>(to)[i] = *reinterpret_cast<const std::uint32_t*>(
          scales + tile_line * blocks + i / tile_extent * 4);
    }
    return;
  }
  if constexpr (blocks == 8) {
    // Row-major: a store for each line, as it is their number that takes time.
    const bool whole = block + blocks <= index.blocks;
    if (!swizzled && whole && (reinterpret_cast<std::uintptr_t>(to) | index.blocks) % 8 == 0) {
      for (int i = threadIdx.x; i < tile_extent && line + i < index.rows; i += tile_threads) {
        *reinterpret_cast<uint2*>(to + (line + i) * index.blocks + block) =
            *reinterpret_cast<const uint2*>(scales + i * blocks);
      }
      return;
    }
  }
  const std::int64_t lines_end =
      swizzled ? round_up(index.rows, ScaleIndex::tile_rows) : index.rows;
  const std::int64_t blocks_end =
      swizzled ? round_up(index.blocks, ScaleIndex::tile_blocks) : index.blocks;
  if ((reinterpret_cast<std::uintptr_t>(to) | (swizzled ? 0 : index.blocks)) % 4 != 0) {
    // Byte by byte, a line by adjacent lanes: a warp writes to 8 lines at a time, or 4, not to 32.
#pragma unroll 1
    for (int i = threadIdx.x; i < tile_extent * blocks; i += tile_threads) {
      const std::int64_t to_line = line + i / blocks, to_block = block + i % blocks;
      if (to_line < lines_end && to_block < blocks_end) {
        to[index.offset(to_line, to_block)] = scales[i];
      }
    }
    return;
  }
  // Four scales of a line lie together in both layouts.
  for (int i = threadIdx.x; i < tile_extent * blocks / 4; i += tile_threads) {
    // In the order of the swizzled layout, so that a warp writes 128 bytes in a row there.
    const int group = i / tile_extent;
    const int within = i % tile_extent;
    const int tile_line = swizzled ? within % 4 * 32 + within / 4 : within;
    const std::int64_t to_line = line + tile_line;
    const std::int64_t to_block = block + group * 4;
    if (to_line < lines_end && to_block < blocks_end) {
      *reinterpret_cast<std::uint32_t*>(to + index.offset(to_line, to_block)) =
          *reinterpret_cast<const std::uint32_t*>(scales + tile_line * blocks + group * 4);
    }
  }
}

}  // namespace mxkern::kernels
