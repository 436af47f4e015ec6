// tests/ops/expert_layer_test.cc: the layer of a mixture of experts on the CPU: the operations that
// it consists of, double precision, and what is refused.
#include "mxkern/expert_layer.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "mxkern/core/error.h"
#include "mxkern/threads.h"
#include "tests/support/error_message.h"
#include "tests/support/expert_case.h"

namespace mxkern {
namespace {

using namespace test;

// Experts without copies, one with all, copies behind the last end, and no expert at all.
const std::vector<std::vector<std::int32_t>> routings = {
    {0, 3, 3, 21, 28}, {0, 30, 30}, {30}, {0, 0}, {}};

TEST(ExpertLayer, IsWhatItConsistsOf) {
  std::uint64_t seed = 0;
  for (const Scheme weights : all_schemes) {
    for (int scheme = -1; scheme < static_cast<int>(std::size(all_schemes)); ++scheme) {
      ++seed;
      ExpertCase c(all_dtypes[seed % 3], weights, all_dtypes[seed / 3 % 3],
                   routings[seed % routings.size()], 30);
      if (scheme >= 0) c.options.scheme = all_schemes[scheme];
      if (seed % 2 == 0) c.options.activation = SwigluOptions::gpt_oss();
      c.has_others = seed % 4 > 0;
      const PlainTensor wanted = c.composed();
      c.run();
      ASSERT_EQ(c.out.bytes, wanted.bytes) << name_of(weights) << ", " << scheme;
    }
  }
}

TEST(ExpertLayer, AgreesWithDoublePrecision) {
  for (const auto& ends : routings) {
    for (const bool is_gpt_oss : {false, true}) {
      ExpertCase c(DType::bfloat16, Scheme::mxfp4, DType::float32, ends, 30);
      if (is_gpt_oss) c.options.activation = SwigluOptions::gpt_oss();
      c.run();
      const std::vector<double> wanted = c.wanted();
      double largest = 0.0;
      for (const double value : wanted) largest = std::max(largest, std::fabs(value));
      for (std::int64_t t = 0; t < 13; ++t) {
        for (std::int64_t j = 0; j < 40; ++j) {
          ASSERT_NEAR(c.out.value(0, t, j), wanted[t * 40 + j], 1e-5 * largest) << t << ", " << j;
        }
      }
    }
  }
}

// The scales of the tokens and those of the weights run against each other, over 40 octaves.
TEST(ExpertLayer, ScalesFarApart) {
  ExpertCase c(DType::float32, Scheme::mxfp8_e4m3, DType::float32, {4, 17, 30}, 30);
  c.has_others = false;
  const Values normal = normal_values(9);
  c.x.fill([&](std::int64_t b, std::int64_t r, std::int64_t k) {
    return std::ldexp(normal(b, r, k), static_cast<int>(20 - k / 32 * 20));
  });
  c.gate_up.quantize([&](std::int64_t b, std::int64_t r, std::int64_t k) {
    return std::ldexp(normal(b + 7, r, k), static_cast<int>(k / 32 * 20 - 20));
  });
  c.run();
  const std::vector<double> wanted = c.wanted();
  double error = 0.0, norm = 0.0;
  for (std::int64_t i = 0; i < 13 * 40; ++i) {
    error += std::pow(c.out.value(0, i / 40, i % 40) - wanted[i], 2);
    norm += wanted[i] * wanted[i];
  }
  EXPECT_LE(std::sqrt(error / norm), 1e-5);
}

TEST(ExpertLayer, NanReachesTheTokensOfItsExpert) {
  ExpertCase c(DType::float32, Scheme::mxfp4, DType::float32, {3, 6, 12}, 12);
  c.rows = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, -1};
  c.gate_up.scale(1, 5, 0) = 0xFF;
  c.x.set(0, 8, 2, std::numeric_limits<float>::quiet_NaN());
  c.run();
  for (std::int64_t t = 0; t < 13; ++t) {
    EXPECT_EQ(std::isnan(c.out.value(0, t, 1)), (t >= 3 && t < 6) || t == 8) << t;
  }
  EXPECT_EQ(c.out.value(0, 12, 0), 0.0);
}

TEST(ExpertLayer, TheNumberOfThreadsChangesNothing) {
  const int before = num_threads();
  std::vector<std::uint8_t> first;
  for (const int threads : {1, 2, 5}) {
    set_num_threads(threads);
    ExpertCase c(DType::bfloat16, Scheme::mxfp4, DType::bfloat16, {60, 60, 350, 900}, 1000,
                 {300, 256, 160, 96});
    c.options.scheme = Scheme::mxfp8_e4m3;
    c.run();
    if (first.empty()) first = c.out.bytes;
    EXPECT_EQ(c.out.bytes, first) << threads;
  }
  set_num_threads(before);
}

TEST(ExpertLayer, ShapesThatHaveLittle) {
  for (const ExpertSizes& n : {ExpertSizes{13, 0, 72, 40}, ExpertSizes{13, 96, 0, 40},
                               ExpertSizes{13, 96, 72, 0}, ExpertSizes{2, 1, 1, 1}}) {
    for (const std::int64_t copies : {0, 30}) {
      const auto last = static_cast<std::int32_t>(copies);
      ExpertCase c(DType::float32, Scheme::mxfp4, DType::float32, {0, last}, copies, n);
      c.options.scheme = Scheme::mxfp8_e4m3;
      const PlainTensor wanted = copies == 0 ? c.out : c.composed();
      c.run();
      if (copies > 0) {
        EXPECT_EQ(c.out.bytes, wanted.bytes) << n.inputs << ", " << n.hidden << ", " << n.outputs;
      } else if (n.outputs > 0) {
        EXPECT_EQ(c.out.value(0, 1, 0), 0.0);
      }
    }
  }
}

TEST(ExpertLayer, TakesQuantizedTokens) {
  ExpertCase c(DType::float32, Scheme::mxfp4, DType::bfloat16, {10, 30}, 30);
  c.options.scheme = Scheme::mxfp8_e4m3;
  QuantizedOperand q(Scheme::mxfp8_e4m3, c.x.view.shape, ScaleLayout::swizzled);
  quantize(c.x.buffer(), q.quantized());
  c.run();
  const std::vector<std::uint8_t> wanted = c.out.bytes;
  c.run(q.quantized());
  EXPECT_EQ(c.out.bytes, wanted);
  c.run(PreparedOperand{PreparedForm::source, q.quantized()});
  EXPECT_EQ(c.out.bytes, wanted);
}

TEST(ExpertLayer, RefusesWhatDoesNotFit) {
  const auto expect = [](const std::string& says, auto&& change) {
    ExpertCase c(DType::float32, Scheme::mxfp4, DType::float32, {10, 30}, 30);
    ExpertWeights weights = c.expert_weights();
    ExpertRouting routing = c.routing();
    Buffer out = c.out.buffer();
    GemmOperand x = c.x.buffer();
    std::size_t missing = 0;
    change(c, weights, routing, x, out, missing);
    expect_failure<InvalidArgument>(says, [&] {
      const std::size_t bytes = expert_layer_workspace_bytes(x, weights, routing, out, c.options);
      const AlignedMemory memory(bytes);
      expert_layer(x, weights, routing, out, c.options, {memory.workspace().data, bytes - missing});
    });
  };
  using Case = ExpertCase;
  using Weights = ExpertWeights;
  using Routing = ExpertRouting;
  expect("grouped_gemm: ends[1] is 5; expected 10 to 30",
         [](Case& c, Weights&, Routing&, GemmOperand&, Buffer&, std::size_t&) { c.ends[1] = 5; });
  expect("rows[2] is 13; expected 0 to 12",
         [](Case& c, Weights&, Routing&, GemmOperand&, Buffer&, std::size_t&) { c.rows[2] = 13; });
  expect("rows[29] is -2; expected 0 to 12",
         [](Case& c, Weights&, Routing&, GemmOperand&, Buffer&, std::size_t&) { c.rows[29] = -2; });
  expect("expert_layer: rows is null", [](Case&, Weights&, Routing& r, GemmOperand&, Buffer&,
                                          std::size_t&) { r.rows = nullptr; });
  expect("expert_layer: experts.ends is null",
         [](Case&, Weights&, Routing& r, GemmOperand&, Buffer&, std::size_t&) {
           r.experts.ends = nullptr;
         });
  expect("expert_layer: down has shape [2, 40, 72]; expected [3, 40, 72]",
         [](Case& c, Weights& w, Routing& r, GemmOperand&, Buffer&, std::size_t&) {
           static const std::int32_t three[] = {10, 20, 30};
           static QuantizedOperand up(Scheme::mxfp4, {3, 144, 96}, ScaleLayout::row_major);
           static_cast<void>(c);
           w.gate_up = up.quantized();
           r.experts = {three, 3};
         });
  expect("expert_layer: out has shape [1, 13, 39]; expected [1, 13, 40]",
         [](Case&, Weights&, Routing&, GemmOperand&, Buffer& out, std::size_t&) {
           out.shape.columns = 39;
         });
  expect("expert_layer: gate_up_bias has shape",
         [](Case& c, Weights& w, Routing&, GemmOperand&, Buffer&, std::size_t&) {
           w.gate_up_bias = &c.down_bias.view;
         });
  expect("expert_layer: limit is 0", [](Case& c, Weights&, Routing&, GemmOperand&, Buffer&,
                                        std::size_t&) { c.options.activation.limit = 0; });
  expect("expert_layer: precision is auto",
         [](Case& c, Weights&, Routing&, GemmOperand&, Buffer&, std::size_t&) {
           c.options.precision = GemmPrecision::automatic;
         });
  expect("expert_layer: workspace has", [](Case&, Weights&, Routing&, GemmOperand&, Buffer&,
                                           std::size_t& missing) { missing = 1; });
  expect("out overlaps", [](Case& c, Weights&, Routing&, GemmOperand&, Buffer& out, std::size_t&) {
    out.data = c.x.bytes.data();
  });
}

TEST(ExpertLayer, IsExactOnTheCpu) {
  ExpertCase c(DType::float32, Scheme::mxfp4, DType::float32, {10, 30}, 30);
  c.options.precision = GemmPrecision::folded;
  expect_failure<Unsupported>("precision is folded, and the CPU's products are exact",
                              [&] { c.run(); });
}

}  // namespace
}  // namespace mxkern
