// tests/overlap_test.cc: outputs that lie in the memory of an input or of another output.
#include "overlap.h"

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

// A scalar that is given may be where one is written, not in codes or scales.
TEST(Overlap, GivenScalars) {
  Memory m;
  BlockScaled q = m.at(1024, 1280);
  q.scheme = Scheme::nvfp4;
  q.tensor_scale = reinterpret_cast<float*>(m.bytes + 2048);
  *q.tensor_scale = 0.5f;
  const auto message = [&](const float* amax, const float* tensor_scale) {
    return error_message([&] { quantize(m.x, q, {.amax = amax, .tensor_scale = tensor_scale}); });
  };
  EXPECT_EQ(message(nullptr, q.tensor_scale), nothing);
  EXPECT_EQ(message(q.tensor_scale, nullptr), nothing);
  EXPECT_EQ(message(reinterpret_cast<float*>(q.codes + 124), nullptr),
            std::string("quantize: out.codes overlaps amax") + way_out);
  EXPECT_EQ(message(nullptr, reinterpret_cast<float*>(q.scales + 12)),
            std::string("quantize: out.scales overlaps tensor_scale") + way_out);
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
            "tensor_amax: amax is at an odd address; expected a multiple of 4 bytes");
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

}  // namespace
}  // namespace mxkern
