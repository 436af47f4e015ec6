// mxkern/kernels/expand.cuh: operands of any kind to bfloat16 under one power of two a row.
#pragma once

#include <cstdint>

#include "mxkern/kernels/code_stream.cuh"
#include "mxkern/kernels/core_gate.cuh"
#include "mxkern/kernels/dequantize.cuh"
#include "mxkern/kernels/row_team.cuh"
#include "mxkern/numerics/visit.h"

namespace mxkern::kernels {

struct ExpandedRows {
  bfloat16* data;  // rows start on 16 bytes and have room for whole 16 bytes
  std::int64_t row_elements, part_elements, batch_elements;
  std::int32_t* exponents;
};

// A plain operand.
struct PlainRows {
  DType dtype;
  const void* x;
  std::int64_t batch_stride, row_stride;
  bool vector_loads;  // every octet starts on 16 bytes
};

// An operand; of a plain one `stream` has the shape alone, and no codes.
struct ExpandOperand {
  CodeStream stream;
  Scheme scheme;
  PlainRows plain;
  ExpandedRows out;
};

struct ExpandParameters {
  ExpandOperand operand[2];
  SpreadGate gate;
};

// One row of an operand, or none, for a thread of the team that has it.
struct ExpandRow {
  const ExpandOperand& o;
  StreamRow row;

  __device__ __forceinline__ ExpandRow(const ExpandOperand& operand, const StreamPosition& position)
      : o(operand), row(operand.stream, position) {}

  // By one thread of the row.
  __device__ __forceinline__ void write_exponent(int exponent) const {
    if (row.team.rank == 0 && row.exists) o.out.exponents[row.index] = exponent;
  }
  __device__ __forceinline__ bfloat16* out() const {
    return o.out.data + row.at.batch * o.out.batch_elements + row.at.row * o.out.row_elements +
           row.first_column;
  }
};

// Eight values under a power of two that may lie beyond those of float32.
__device__ __forceinline__ RawOctet<bfloat16> scale_octet(float (&v)[8], float scale) {
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] = __fmul_rn(v[i], scale);
  return pack<bfloat16>(v);
}

// Eight packed codes from shared memory.
template <class Format>
__device__ __forceinline__ Octet octet_at(const unsigned char* p) {
  if constexpr (Format::bits == 8) {
    const uint2 v = *reinterpret_cast<const uint2*>(p);
    return v.x | static_cast<Octet>(v.y) << 32;
  } else if constexpr (Format::bits == 6) {
    const auto* parts = reinterpret_cast<const std::uint16_t*>(p);
    return parts[0] | static_cast<std::uint32_t>(parts[1]) << 16 |
           static_cast<Octet>(parts[2]) << 32;
  } else {
    return *reinterpret_cast<const std::uint32_t*>(p);
  }
}

// Codes under block scales. Power-of-two scales are taken relative to the largest of the row.
template <class S>
__device__ __forceinline__ void expand_codes(const ExpandRow& place, const unsigned char* stage,
                                             int exponent) {
  using Format = typename S::Format;
  const StreamRow& row = place.row;
  const int raised = exponent - Format::max_exponent;
  unsigned largest = 0;
  if constexpr (!S::has_tensor_scale) {
    largest = row.largest_scale(stage);
    place.write_exponent(static_cast<int>(largest) - E8M0::bias - raised);
  }
  const unsigned char* codes = stage + row.codes_at();
  const std::int64_t first_block = row.first_column / S::block;
  bfloat16* out = place.out();
#pragma unroll 2
  for (int octet = row.team.rank; octet * 8 < row.columns; octet += row.team.threads()) {
    const unsigned byte = row.scale(stage, first_block + octet * 8 / S::block);
    float scale;
    if constexpr (S::has_tensor_scale) {
      scale = fast_scale<S>(static_cast<std::uint8_t>(byte));
    } else {
      const int power = raised - static_cast<int>(largest - byte);
      scale = byte == E8M0::nan_byte ? float_of(float32::nan_bits)
              : power < -149         ? 0.0f
                                     : float32::exp2(power);
    }
    float v[8];
    decode_octet<Format>(octet_at<Format>(codes + octet * Format::bits), v);
    store_octet(out + octet * 8, scale_octet(v, scale));
  }
}

// What is left of finite values after their upper eight significant bits, which go to `upper`, a
// float32 a value; Inf and NaN leave nothing.
__device__ __forceinline__ void split_octet(float (&v)[8], float (&upper)[8]) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const std::uint32_t bits = bits_of(v[i]);
    const bool finite = float32::is_finite(bits);
    // A NaN whose payload lies in the lower half must not become Inf.
    const std::uint32_t quiet =
        (bits & float32::magnitude_mask) > float32::infinity_bits ? 0x00400000u : 0u;
    upper[i] = float_of((bits | quiet) & 0xFFFF0000u);
    v[i] = finite ? v[i] - upper[i] : 0.0f;
  }
}

// Plain elements as the sum of so many bfloat16 that nothing is lost.
template <class T>
__device__ __forceinline__ void expand_plain(const ExpandRow& place, unsigned* slots,
                                             int exponent) {
  constexpr int parts = sizeof(T) == 4 ? 3 : dtype_of<T>::value == DType::float16 ? 2 : 1;
  const StreamRow& row = place.row;
  const PlainRows& plain = place.o.plain;
  const int threads = row.team.threads();
  const T* x = static_cast<const T*>(plain.x) + row.at.batch * plain.batch_stride +
               row.at.row * plain.row_stride;
  float factor[2] = {1.0f, 1.0f};
  if constexpr (parts == 3) {
    // float32 goes further down than bfloat16 with its lower parts: rows are moved up.
    unsigned largest = 0;
    const std::int64_t columns = row.exists ? row.s.columns : 0;
    for (std::int64_t at = row.team.rank * 8; at < columns; at += threads * 8) {
      const RawOctet<T> raw = load_guarded(x + at, columns - at, plain.vector_loads);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const std::uint32_t magnitude = raw.word[i] & float32::magnitude_mask;
        if (float32::is_finite(magnitude)) largest = max(largest, magnitude);
      }
    }
    largest = row.team.max_of(largest, slots);
    const int field = max(static_cast<int>(float32::exponent_field(largest)), 1);
    const int up = exponent - (field - float32::bias);
    factor[0] = float32::exp2(up / 2);
    factor[1] = float32::exp2(up - up / 2);
    place.write_exponent(-up);
  }
  x += row.first_column;
  bfloat16* out = place.out();
#pragma unroll 2
  for (int at = row.team.rank * 8; at < row.columns; at += threads * 8) {
    const RawOctet<T> raw = load_guarded(x + at, row.columns - at, plain.vector_loads);
    if constexpr (parts == 1) {
      store_octet(out + at, raw);
    } else {
      float v[8], upper[8];
      unpack(raw, v);
      if constexpr (parts == 3) {
#pragma unroll
        for (int k = 0; k < 8; ++k) v[k] = __fmul_rn(__fmul_rn(v[k], factor[0]), factor[1]);
      }
#pragma unroll
      for (int part = 0; part < parts; ++part) {
        split_octet(v, upper);
        store_octet(out + at + part * place.o.out.part_elements, pack<bfloat16>(upper));
      }
    }
  }
}

inline constexpr int expand_blocks = 4;  // of a multiprocessor

// Where a thread block is among the groups of both operands.
struct ExpandPosition {
  const ExpandParameters& p;
  StreamPosition both;

  __device__ __forceinline__ bool is_end() const {
    return both.group >= p.operand[0].stream.groups + p.operand[1].stream.groups;
  }
  __device__ __forceinline__ bool is_second() const {
    return both.group >= p.operand[0].stream.groups;
  }
  __device__ __forceinline__ const ExpandOperand& operand() const {
    return p.operand[is_second() ? 1 : 0];
  }
  __device__ __forceinline__ StreamPosition own() const {
    return {is_second() ? both.group - p.operand[0].stream.groups : both.group, both.chunk};
  }
  __device__ __forceinline__ void advance() { both.advance(operand().stream.chunks); }
};

// Up to two operands. One kernel for every kind of operand: which it is is the same question for a
// whole thread block. The largest elements of a row get an exponent of Exponent.
template <int Exponent>
__global__ void __launch_bounds__(team_threads, expand_blocks)
    expand_kernel(const __grid_constant__ ExpandParameters p) {
  extern __shared__ __align__(16) unsigned char ring[];
  __shared__ unsigned slots[2][team_threads / 32];
  if (!is_open(p.gate)) return;
  const int stage_bytes = max(p.operand[0].stream.stage_bytes, p.operand[1].stream.stage_bytes);
  ExpandPosition here{p, {blockIdx.x}}, ahead = here;
  const auto start_copy = [&](int stage) {
    if (!ahead.is_end()) {
      const ExpandOperand& o = ahead.operand();
      if (o.stream.codes != nullptr) {
        StreamRow(o.stream, ahead.own()).copy(ring + stage * stage_bytes);
      }
      ahead.advance();
    }
    ptx::copy_async_commit();
  };
#pragma unroll 1
  for (int stage = 0; stage < stream_stages - 1; ++stage) start_copy(stage);
#pragma unroll 1
  for (int stage = 0; !here.is_end(); stage = (stage + 1) % stream_stages) {
    ptx::copy_async_wait<stream_stages - 2>();
    // Also: everybody is done with the stage that is filled next.
    __syncthreads();
    start_copy((stage + stream_stages - 1) % stream_stages);
    const ExpandOperand& o = here.operand();
    const ExpandRow row(o, here.own());
    if (o.stream.codes != nullptr) {
      const unsigned char* memory = ring + stage * stage_bytes;
      switch (o.scheme) {
#define MXKERN_CASE(Type) \
  case Type::id: expand_codes<Type>(row, memory, Exponent); break;
        MXKERN_FOR_EACH_SCHEME(MXKERN_CASE)
#undef MXKERN_CASE
      }
    } else {
      switch (o.plain.dtype) {
        case DType::float32: expand_plain<float>(row, slots[stage % 2], Exponent); break;
        case DType::float16: expand_plain<float16>(row, slots[stage % 2], Exponent); break;
        case DType::bfloat16: expand_plain<bfloat16>(row, slots[stage % 2], Exponent); break;
      }
    }
    here.advance();
  }
}

}  // namespace mxkern::kernels
