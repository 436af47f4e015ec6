// tests/check/overlap_test.cc: outputs that lie in the memory of an input or of another output.
#include "check/arguments.h"

#include <gtest/gtest.h>

#include <string>

#include "mxkern/dequantize.h"
#include "mxkern/quantize.h"
#include "mxkern/scales.h"
#include "tests/support/error_message.h"

namespace mxkern {
namespace {

using test::error_message;

const std::string nothing = "(nothing was thrown)";

constexpr const char* way_out = "; expected memory of its own; write to another buffer and copy it";

struct Memory {
  alignas(64) std::uint8_t bytes[8192] = {};
  Shape shape{1, 4, 64};
  Buffer x = Buffer::dense(bytes, DType::float32, shape);  // 1024 bytes

  BlockScaled at(std::int64_t codes, std::int64_t scales) {
    return {.scheme = Scheme::mxfp8_e4m3,
            .shape = shape,
            .codes = bytes + codes,
            .scales = bytes + scales,
            .device = {}};
  }
};

TEST(Overlap, OutputsOfQuantize) {
  Memory m;
  EXPECT_EQ(error_message([&] { quantize(m.x, m.at(1024, 1280)); }), nothing);
  EXPECT_EQ(error_message([&] { quantize(m.x, m.at(1023, 2000)); }),
            std::string("quantize: out.codes overlaps x") + way_out);
  EXPECT_EQ(error_message([&] { quantize(m.x, m.at(1024, 100)); }),
            std::string("quantize: out.scales overlaps x") + way_out);
  EXPECT_EQ(error_message([&] { quantize(m.x, m.at(1024, 1279)); }),
            std::string("quantize: out.scales overlaps out.codes") + way_out);
  const BlockScaled rows = m.at(1024, 1280);
  BlockScaled columns = m.at(4096, 1280);
  columns.shape = m.shape.transposed();
  EXPECT_EQ(error_message([&] { quantize_both(m.x, rows, columns); }),
            std::string("quantize_both: columns.scales overlaps rows.scales") + way_out);
}

// What lies between two rows is nobody's.
TEST(Overlap, BetweenTheRowsOfATensor) {
  Memory m;
  m.x = {m.bytes, DType::float32, {1, 4, 64}, 128, 512, {}};  // every other 256 bytes
  BlockScaled q = m.at(2048, 256);
  const auto scales_at = [&](std::int64_t begin) { q.scales = m.bytes + begin; };
  for (const std::int64_t fine : {256, 504, 768}) {
    scales_at(fine);
    EXPECT_EQ(error_message([&] { quantize(m.x, q); }), nothing) << fine;
    EXPECT_EQ(error_message([&] { dequantize(q, m.x); }), nothing) << fine;
  }
  for (const std::int64_t refused : {249, 505, 600, 1530}) {
    scales_at(refused);
    EXPECT_EQ(error_message([&] { quantize(m.x, q); }),
              std::string("quantize: out.scales overlaps x") + way_out);
    EXPECT_EQ(error_message([&] { dequantize(q, m.x); }),
              std::string("dequantize: out overlaps q.scales") + way_out);
  }
  auto* const floats = reinterpret_cast<float*>(m.bytes);
  EXPECT_EQ(error_message([&] { tensor_amax(m.x, floats + 64); }), nothing);
  EXPECT_EQ(error_message([&] { tensor_amax(m.x, floats + 128); }),
            std::string("tensor_amax: amax overlaps x") + way_out);
}

// Nothing is written where a scalar that is given lies: on a GPU others may read it later.
TEST(Overlap, GivenScalars) {
  Memory m;
  BlockScaled q = m.at(1024, 1280);
  q.scheme = Scheme::nvfp4;
  q.tensor_scale = reinterpret_cast<float*>(m.bytes + 2048);
  *q.tensor_scale = 0.5f;
  const auto message = [&](const float* amax, const float* tensor_scale) {
    return error_message([&] { quantize(m.x, q, {.amax = amax, .tensor_scale = tensor_scale}); });
  };
  EXPECT_EQ(message(nullptr, q.tensor_scale + 1), nothing);
  EXPECT_EQ(message(nullptr, q.tensor_scale),
            std::string("quantize: out.tensor_scale overlaps tensor_scale") + way_out);
  EXPECT_EQ(message(q.tensor_scale, nullptr),
            std::string("quantize: out.tensor_scale overlaps amax") + way_out);
  EXPECT_EQ(message(reinterpret_cast<float*>(q.codes + 124), nullptr),
            std::string("quantize: out.codes overlaps amax") + way_out);
  EXPECT_EQ(message(nullptr, reinterpret_cast<float*>(q.scales + 12)),
            std::string("quantize: out.scales overlaps tensor_scale") + way_out);
  const auto* step = reinterpret_cast<const std::uint64_t*>(q.tensor_scale);
  EXPECT_EQ(error_message(
                [&] { quantize(m.x, q, {.rounding = Rounding::stochastic, .offset_at = step}); }),
            std::string("quantize: out.tensor_scale overlaps offset_at") + way_out);

  // What one direction is given, and what is found for the other.
  BlockScaled columns = q;
  columns.shape = q.shape.transposed();
  columns.codes = m.bytes + 3072;
  columns.scales = m.bytes + 2560;
  columns.tensor_scale = q.tensor_scale + 1;
  float* const found = q.tensor_scale + 2;
  *found = 1.0f;
  const auto both = [&](const float* amax) {
    return error_message(
        [&] { quantize_both(m.x, q, columns, {.amax = amax}, {.found_amax = found}); });
  };
  EXPECT_EQ(both(found + 1), nothing);
  EXPECT_EQ(both(found), std::string("quantize_both: found_amax overlaps amax") + way_out);
  EXPECT_EQ(both(columns.tensor_scale),
            std::string("quantize_both: columns.tensor_scale overlaps amax") + way_out);
}

TEST(Overlap, NothingOverlapsWhatIsEmpty) {
  Memory m;
  m.shape = {1, 0, 64};
  m.x.shape = m.shape;
  EXPECT_EQ(error_message([&] { quantize(m.x, m.at(0, 0)); }), nothing);
}

TEST(Overlap, TheAmaxOfATensor) {
  Memory m;
  auto* const floats = reinterpret_cast<float*>(m.bytes);
  EXPECT_EQ(error_message([&] { tensor_amax(m.x, floats + 256); }), nothing);
  EXPECT_EQ(error_message([&] { tensor_amax(m.x, floats + 255); }),
            std::string("tensor_amax: amax overlaps x") + way_out);
  auto* const odd = reinterpret_cast<float*>(m.bytes + 1030);
  EXPECT_EQ(error_message([&] { tensor_amax(m.x, odd); }),
            "tensor_amax: amax is misaligned; expected an address that is a multiple of 4 bytes");
}

TEST(Overlap, OutputsOfDequantizeAndScales) {
  Memory m;
  EXPECT_EQ(error_message([&] { dequantize(m.at(1024, 1280), m.x); }), nothing);
  EXPECT_EQ(error_message([&] { dequantize(m.at(1024, 1016), m.x); }),
            std::string("dequantize: out overlaps q.scales") + way_out);
  EXPECT_EQ(error_message([&] { swizzle_scales(m.bytes, m.bytes + 8, 1, 2, 4); }), nothing);
  EXPECT_EQ(error_message([&] { swizzle_scales(m.bytes, m.bytes + 7, 1, 2, 4); }),
            std::string("swizzle_scales: swizzled overlaps row_major") + way_out);
}

TEST(Overlap, ScalarsGivenForColumns) {
  alignas(64) static std::uint8_t bytes[8192] = {};
  const Shape shape{1, 4, 64};
  const Buffer x = Buffer::dense(bytes, DType::float32, shape);
  auto* const scalars = reinterpret_cast<float*>(bytes + 6144);
  const BlockScaled rows{.scheme = Scheme::nvfp4,
                         .shape = shape,
                         .codes = bytes + 1024,
                         .scales = bytes + 2048,
                         .tensor_scale = scalars,
                         .device = {}};
  const BlockScaled columns{.scheme = Scheme::nvfp4,
                            .shape = shape.transposed(),
                            .codes = bytes + 3072,
                            .scales = bytes + 5120,
                            .tensor_scale = scalars + 1,
                            .device = {}};
  const auto both = [&](const float* amax) {
    return error_message([&] { quantize_both(x, rows, columns, {}, {.amax = amax}); });
  };
  EXPECT_EQ(both(scalars + 2), "(nothing was thrown)");
  EXPECT_EQ(both(scalars),
            "quantize_both: rows.tensor_scale overlaps amax; expected memory of its own; write to "
            "another buffer and copy it");
}

}  // namespace
}  // namespace mxkern
