// tests/cuda/experts/combine_test.cc: sums of the rows of each token on the device against the CPU,
// bit for bit, and numbers that are wrong.
#include <cmath>
#include <string>
#include <vector>

#include "cuda/experts/combine.h"
#include "mxkern/mxkern.h"
#include "tests/support/cuda/grouped_product.h"
#include "tests/support/cuda/stream.h"
#include "tests/support/gemm_reference.h"

namespace mxkern {
namespace {

using namespace test;

using CudaCombine = CudaTest;

// All that a call takes, on the host and on the device.
struct Case {
  PlainTensor y, out;
  std::vector<std::int32_t> rows;
  std::vector<float> weights;

  Case(DType from, DType to, std::int64_t count, std::int64_t tokens, std::int64_t columns)
      : y(from, {1, count, columns}, columns % 3 * 8), out(to, {1, tokens, columns}, 1) {
    y.fill(normal_values(static_cast<std::uint64_t>(columns)));
    for (std::int64_t i = 0; i < count; ++i) {
      weights.push_back(static_cast<float>(i % 17) * 0.37f - 2.0f);
      rows.push_back(static_cast<std::int32_t>(i * 7919 % tokens));
    }
  }

  std::vector<std::uint8_t> on_cpu(bool has_weights) {
    PlainTensor wanted = out;
    const AlignedMemory memory(combine_workspace_bytes(y.view.shape.rows, out.view.shape.rows));
    combine(y.buffer(), rows.data(), has_weights ? weights.data() : nullptr, wanted.buffer(),
            memory.workspace());
    return wanted.bytes;
  }

  // end: how many rows count, or -1 for all.
  void run(bool has_weights, std::int32_t end = -1, int runs = 1) {
    DevicePlainTensor device_y(y), device_out(out);
    DeviceCopy numbers(bytes_of_values(rows)), factors(bytes_of_values(weights));
    DeviceCopy last(bytes_of_values(std::vector<std::int32_t>{end}));
    const std::size_t bytes = combine_workspace_bytes(y.view.shape.rows, out.view.shape.rows);
    DeviceCopy memory(std::vector<std::uint8_t>(bytes, 0xFF));
    const auto* indices = reinterpret_cast<const std::int32_t*>(numbers.data());
    const float* given = has_weights ? reinterpret_cast<const float*>(factors.data()) : nullptr;
    check_cuda(cudaDeviceSynchronize());
    const OwnedStream stream;
    const auto call = [&] {
      if (end < 0) {
        return combine(device_y.view(), indices, given, device_out.view(), {memory.data(), bytes},
                       stream);
      }
      cuda::combine("test", device_y.view(), indices,
                    reinterpret_cast<const std::int32_t*>(last.data()), given, device_out.view(),
                    memory.data(), stream);
    };
    if (runs == 1) {
      call();
    } else {
      const OwnedGraph graph(stream, call);
      for (int i = 0; i < runs; ++i) graph.launch(stream);
      check_cuda(cudaStreamSynchronize(stream));
    }
    check_cuda(cudaStreamSynchronize(stream));
    device_out.copy_to(out);
  }

  bool is_all_nan() const {
    bool all = true;
    for (std::int64_t t = 0; t < out.view.shape.rows; ++t) {
      for (std::int64_t k = 0; k < out.view.shape.columns; ++k) {
        all = all && std::isnan(out.value(0, t, k));
      }
    }
    return all;
  }
};

// Few rows, which each thread block looks through, and more, which a kernel lists.
constexpr std::int64_t both_counts[] = {260, 1260};

TEST_F(CudaCombine, TheBytesOfTheCpu) {
  for (const DType from : all_dtypes) {
    for (const DType to : all_dtypes) {
      for (const std::int64_t columns : {1, 8, 40, 1030, 2880}) {
        for (const bool has_weights : {false, true}) {
          Case c(from, to, both_counts[columns % 3 == 1 ? 1 : 0], 70, columns);
          // One token has more rows than are listed, another one as many, and some have none.
          for (int i = 0; i < 40; ++i) c.rows[static_cast<std::size_t>(i * 6)] = 11;
          for (int i = 0; i < 16; ++i) c.rows[static_cast<std::size_t>(i * 15 + 1)] = 12;
          for (auto& row : c.rows) row = row % 13 == 5 ? -1 : row;
          const std::vector<std::uint8_t> wanted = c.on_cpu(has_weights);
          c.run(has_weights, -1, columns == 40 ? 3 : 1);
          ASSERT_EQ(c.out.bytes, wanted) << name_of(from) << ", " << name_of(to) << ", " << columns;
        }
      }
    }
  }
}

TEST_F(CudaCombine, AllRowsOfOneToken) {
  Case c(DType::bfloat16, DType::float32, 5000, 3, 72);
  for (auto& row : c.rows) row = 1;
  const std::vector<std::uint8_t> wanted = c.on_cpu(true);
  c.run(true);
  EXPECT_EQ(c.out.bytes, wanted);
}

TEST_F(CudaCombine, RowsBehindTheEndDoNotCount) {
  for (const std::int64_t count : both_counts) {
    Case c(DType::float32, DType::float32, count, 9, 33);
    Case shorter(DType::float32, DType::float32, count - 19, 9, 33);
    shorter.y = c.y;
    shorter.y.view.shape.rows = count - 19;
    const std::vector<std::uint8_t> wanted = shorter.on_cpu(true);
    c.rows[static_cast<std::size_t>(count - 10)] = 1 << 30;
    c.run(true, static_cast<std::int32_t>(count - 19));
    EXPECT_EQ(c.out.bytes, wanted);
    c.run(true, static_cast<std::int32_t>(count + 1));
    EXPECT_TRUE(c.is_all_nan());
  }
}

TEST_F(CudaCombine, WrongNumbersGiveNan) {
  for (const std::int32_t wrong : {9, -2, 1 << 30}) {
    for (const std::int64_t count : both_counts) {
      Case c(DType::float32, DType::bfloat16, count, 9, 33);
      c.rows[7] = wrong;
      c.run(true);
      EXPECT_TRUE(c.is_all_nan()) << wrong << ", " << count;
    }
  }
}

TEST_F(CudaCombine, NoRows) {
  Case c(DType::float32, DType::float32, 0, 5, 16);
  c.run(false);
  for (std::int64_t t = 0; t < 5; ++t) EXPECT_EQ(c.out.value(0, t, 3), 0.0);
}

}  // namespace
}  // namespace mxkern
