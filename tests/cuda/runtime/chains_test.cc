// tests/cuda/runtime/chains_test.cc: kernels that start before those ahead of them are over, one
// after the other on the same memory: what they give has to be what they give one at a time.
#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "cuda/gemm/gemm.h"
#include "cuda/decode/multiply.h"
#include "mxkern/mxkern.h"
#include "tests/support/compare_quantized.h"
#include "tests/support/cuda/memory.h"
#include "tests/support/cuda/stream.h"

namespace mxkern {
namespace {

using namespace test;

using CudaChains = CudaTest;

constexpr int rounds = 6;

// Called after each operation.
using Between = std::function<void()>;

// Rounds of operations that all use the same memory in between. A kernel that does not wait reads
// what the round before left there, or writes over what that one still reads. Only `results` are
// one for each round.
class Chain {
 public:
  Chain(Scheme scheme, Shape shape, ScaleLayout layout)
      : scheme_(scheme),
        blank_(DType::bfloat16, shape),
        blank_rows_(scheme, shape, layout),
        blank_columns_(scheme, shape.transposed(), layout),
        turned_(blank_),
        decoded_(blank_),
        rows_(blank_rows_),
        columns_(blank_columns_),
        other_rows_(blank_rows_) {
    for (int round = 0; round < rounds; ++round) {
      Tensor x(DType::bfloat16, shape);
      fill_mixed(x, static_cast<std::uint64_t>(round + 1), false);
      inputs_.push_back(std::make_unique<DeviceTensor>(x));
      results_.push_back(std::make_unique<DeviceTensor>(blank_));
    }
  }

  void run(
      Stream stream, const Between& between = [] {}) {
    const auto finding = [](DeviceQuantized& q) {
      QuantizeOptions options;
      options.found_amax = q.found_amax();
      return options;
    };
    for (int round = 0; round < rounds; ++round) {
      const Buffer& x = inputs_[static_cast<std::size_t>(round)]->buffer();
      random_hadamard(x, turned_.buffer(), {16}, false, stream), between();
      quantize(turned_.buffer(), rows_.view(), finding(rows_), stream), between();
      dequantize(rows_.view(), decoded_.buffer(), stream), between();
      quantize_columns(decoded_.buffer(), columns_.view(), finding(columns_), stream), between();
      quantize_both(x, rows_.view(), columns_.view(), finding(rows_), finding(columns_), stream);
      between();
      dequantize(rows_.view(), decoded_.buffer(), stream), between();
      tensor_amax(decoded_.buffer(), amax_.address(), {}, stream), between();
      QuantizeOptions given;
      if (facts_of(scheme_).has_tensor_scale) given.amax = amax_.address();
      quantize(decoded_.buffer(), other_rows_.view(), given, stream), between();
      dequantize(other_rows_.view(), results_[static_cast<std::size_t>(round)]->buffer(), stream);
      between();
    }
  }

  // What one round left behind in memory that all of them use, and the results of all.
  std::vector<std::uint8_t> bytes() {
    std::vector<std::uint8_t> all;
    const auto append = [&](const GuardedBytes& part) {
      all.insert(all.end(), part.data(), part.data() + part.size());
    };
    append(rows_.on_host().codes), append(rows_.on_host().scales);
    append(columns_.on_host().codes), append(columns_.on_host().scales);
    append(other_rows_.on_host().codes), append(other_rows_.on_host().scales);
    for (const auto& result : results_) {
      Tensor host = blank_;
      result->copy_to(host);
      append(host.bytes());
    }
    return all;
  }

  // Results that no run leaves.
  void forget() {
    for (const auto& result : results_) {
      const Shape& shape = blank_.shape();
      check_cuda(cudaMemset(result->buffer().data, 0xA5,
                            static_cast<std::size_t>(shape.size()) * sizeof(bfloat16)));
    }
    check_cuda(cudaDeviceSynchronize());
  }

 private:
  Scheme scheme_;
  Tensor blank_;
  Quantized blank_rows_, blank_columns_;
  std::vector<std::unique_ptr<DeviceTensor>> inputs_, results_;
  DeviceTensor turned_, decoded_;
  DeviceQuantized rows_, columns_, other_rows_;
  DeviceFloat amax_;
};

void synchronize() { check_cuda(cudaDeviceSynchronize()); }

// Ragged, few rows, whole tiles, enough of them that kernels are long, and so many beside edges
// that these and the whole ones have kernels of their own.
const Shape shapes[] = {{1, 40, 80},   {1, 8, 4096},   {2, 129, 160},
                        {1, 256, 384}, {1, 384, 2048}, {1, 3264, 3392}};

TEST_F(CudaChains, OneAfterTheOther) {
  for (const Scheme scheme : all_schemes) {
    for (const Shape& shape : shapes) {
      Chain chain(scheme, shape, all_scale_layouts[shape.rows % 3 == 0]);
      synchronize();
      chain.run({}, synchronize);
      const auto wanted = chain.bytes();
      chain.forget();
      OwnedStream stream;
      chain.run(stream);
      synchronize();
      ASSERT_TRUE(chain.bytes() == wanted) << name_of(scheme) << ", " << shape.rows << " rows";
    }
  }
}

TEST_F(CudaChains, CapturedIntoAGraph) {
  for (const Scheme scheme : {Scheme::mxfp8_e4m3, Scheme::nvfp4}) {
    for (const Shape& shape : shapes) {
      Chain chain(scheme, shape, ScaleLayout::swizzled);
      synchronize();
      chain.run({}, synchronize);
      const auto wanted = chain.bytes();
      chain.forget();
      OwnedStream stream;
      const OwnedGraph graph(stream, [&] { chain.run(stream); });
      for (int replay = 0; replay < 2; ++replay) {
        chain.forget();
        graph.launch(stream);
        graph.launch(stream);
        synchronize();
        ASSERT_TRUE(chain.bytes() == wanted) << name_of(scheme) << ", " << shape.rows << " rows";
      }
    }
  }
}

TEST_F(CudaChains, OnSeveralStreams) {
  std::vector<std::unique_ptr<Chain>> chains;
  std::vector<std::vector<std::uint8_t>> wanted;
  for (const Scheme scheme : all_schemes) {
    chains.push_back(std::make_unique<Chain>(scheme, Shape{1, 384, 512}, ScaleLayout::row_major));
    synchronize();
    chains.back()->run({}, synchronize);
    wanted.push_back(chains.back()->bytes());
    chains.back()->forget();
  }
  std::vector<OwnedStream> streams(3);
  for (std::size_t i = 0; i < chains.size(); ++i) chains[i]->run(streams[i % 3]);
  synchronize();
  for (std::size_t i = 0; i < chains.size(); ++i) ASSERT_TRUE(chains[i]->bytes() == wanted[i]) << i;
}

// A product of few tokens asks for its weights before it waits for the kernel ahead. Between the
// one that writes them and the product there is a kernel that starts early itself.
TEST_F(CudaChains, AFewTokenProductBehind) {
  int device = 0, major = 0;
  check_cuda(cudaGetDevice(&device));
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  if (!cuda::takes_decode(DType::bfloat16, 8, 10 * major))
    GTEST_SKIP() << "no product of few tokens";
  const Shape weights_shape{1, 2048, 1024}, tokens_shape{1, 8, 1024}, out_shape{1, 8, 2048};
  Tensor blank_weights(DType::bfloat16, weights_shape), blank_tokens(DType::bfloat16, tokens_shape);
  Tensor blank_out(DType::bfloat16, out_shape);
  Quantized blank_q(Scheme::mxfp4, weights_shape, ScaleLayout::row_major);
  Quantized blank_x(Scheme::mxfp8_e4m3, tokens_shape, ScaleLayout::row_major);
  std::vector<std::unique_ptr<DeviceTensor>> weights, tokens, outs;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    fill_mixed(blank_weights, 2 * round + 1, false);
    fill_mixed(blank_tokens, 2 * round + 2, false);
    weights.push_back(std::make_unique<DeviceTensor>(blank_weights));
    tokens.push_back(std::make_unique<DeviceTensor>(blank_tokens));
    outs.push_back(std::make_unique<DeviceTensor>(blank_out));
  }
  DeviceQuantized q(blank_q), x(blank_x);
  DeviceTensor decoded(blank_tokens);
  DeviceBytes memory(static_cast<std::size_t>(cuda::reordered_bytes(Scheme::mxfp4, weights_shape)));
  const cuda::ReorderedWeights reordered{Scheme::mxfp4, weights_shape, memory.data(),
                                         first_cuda_device};
  const std::size_t bytes = cuda::copied_tokens_bytes(decoded.buffer());
  DeviceBytes work(bytes);
  const auto run = [&](Stream stream, const Between& between) {
    for (std::size_t round = 0; round < rounds; ++round) {
      quantize(weights[round]->buffer(), q.view(), {}, stream), between();
      cuda::reorder_weights("test", q.view(), memory.data(), stream), between();
      quantize(tokens[round]->buffer(), x.view(), {}, stream), between();
      dequantize(x.view(), decoded.buffer(), stream), between();
      cuda::CoreFinish finish;
      finish.out = outs[round]->buffer();
      cuda::multiply_decode("test", decoded.buffer(), reordered, finish, {work.data(), bytes},
                            stream);
      between();
    }
    synchronize();
    std::vector<std::uint8_t> all;
    for (const auto& out : outs) {
      out->copy_to(blank_out);
      const GuardedBytes& host = blank_out.bytes();
      all.insert(all.end(), host.data(), host.data() + host.size());
      check_cuda(cudaMemset(out->buffer().data, 0xA5, static_cast<std::size_t>(host.size())));
    }
    synchronize();
    return all;
  };
  const auto wanted = run({}, synchronize);
  OwnedStream stream;
  for (int repeat = 0; repeat < 3; ++repeat) {
    ASSERT_TRUE(run(stream, [] {}) == wanted) << "repeat " << repeat;
  }
}

// Values of either sign between a quarter and two: sums of a thousand products are near a few
// dozen. The blocks of a row lie up to `octaves` below that.
void fill_even(Tensor& tensor, std::uint64_t seed, int octaves = 0) {
  RandomBits random(seed);
  const Shape& shape = tensor.shape();
  for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      for (std::int64_t column = 0; column < shape.columns; ++column) {
        const int down = static_cast<int>(column / 32 % (octaves + 1));
        tensor.set(batch, row, column, std::ldexp(float_of(random.float_bits(-2, 0)), -down));
      }
    }
  }
}

// Whether bfloat16 values are, and not all alike, so that a comparison of their bytes says
// something.
bool are_finite(const std::vector<std::uint8_t>& bytes) {
  for (std::size_t i = 1; i < bytes.size(); i += 2) {
    if ((bytes[i] & 0x7F) == 0x7F && (bytes[i - 1] & 0x80) != 0) return false;
  }
  return std::adjacent_find(bytes.begin(), bytes.end(), std::not_equal_to<>()) != bytes.end();
}

// Products whose tokens are the outputs of the one ahead, forth and back between two matrices: by
// whichever kernel so many tokens take, thread blocks of two of them share a multiprocessor.
TEST_F(CudaChains, FewTokenProductsOfEachOther) {
  int device = 0, major = 0;
  check_cuda(cudaGetDevice(&device));
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  if (!cuda::takes_decode(DType::bfloat16, 8, 10 * major))
    GTEST_SKIP() << "no product of few tokens";
  constexpr std::int64_t wide = 3072, narrow = 2048;
  for (const Scheme scheme : {Scheme::mxfp4, Scheme::nvfp4, Scheme::mxfp8_e4m3}) {
    std::vector<std::unique_ptr<DeviceBytes>> memories;
    std::vector<std::unique_ptr<DeviceQuantized>> quantized;
    std::vector<cuda::ReorderedWeights> weights;
    for (const Shape& shape : {Shape{1, wide, narrow}, Shape{1, narrow, wide}}) {
      Tensor host(DType::bfloat16, shape);
      fill_even(host, weights.size() + 1);
      DeviceTensor on_device(host);
      Quantized blank(scheme, shape, ScaleLayout::row_major);
      quantized.push_back(std::make_unique<DeviceQuantized>(blank));
      QuantizeOptions options;
      options.found_amax = quantized.back()->found_amax();
      quantize(on_device.buffer(), quantized.back()->view(), options, {});
      memories.push_back(std::make_unique<DeviceBytes>(
          static_cast<std::size_t>(cuda::reordered_bytes(scheme, shape))));
      cuda::reorder_weights("test", quantized.back()->view(), memories.back()->data(), {});
      weights.push_back({scheme, shape, memories.back()->data(), first_cuda_device});
      synchronize();
    }
    for (const std::int64_t tokens : {1, 8, 13, 16, 17, 32, 48, 64, 96, 128, 200}) {
      Tensor blank_narrow(DType::bfloat16, {1, tokens, narrow});
      Tensor blank_wide(DType::bfloat16, {1, tokens, wide});
      Tensor start = blank_narrow;
      fill_even(start, 7);
      DeviceTensor x(start), first(start), between(blank_wide);
      const auto multiply = [&](DeviceTensor& from, std::size_t which, DeviceTensor& to,
                                Stream stream) {
        cuda::CoreFinish finish;
        finish.alpha = 1.0f / 50.0f;
        if (facts_of(scheme).has_tensor_scale) {
          finish.right_tensor_scale = quantized[which]->view().tensor_scale;
        }
        finish.out = to.buffer();
        cuda::multiply_decode("test", from.buffer(), weights[which], finish, {}, stream);
      };
      const auto run = [&](Stream stream, const Between& after) {
        const auto bytes = static_cast<std::size_t>(blank_narrow.bytes().size());
        check_cuda(
            cudaMemcpy(x.buffer().data, first.buffer().data, bytes, cudaMemcpyDeviceToDevice));
        check_cuda(cudaMemset(between.buffer().data, 0xA5,
                              static_cast<std::size_t>(blank_wide.bytes().size())));
        synchronize();
        for (int round = 0; round < rounds; ++round) {
          multiply(x, 0, between, stream), after();
          multiply(between, 1, x, stream), after();
        }
        synchronize();
        x.copy_to(blank_narrow);
        const GuardedBytes& host = blank_narrow.bytes();
        return std::vector<std::uint8_t>(host.data(), host.data() + host.size());
      };
      const auto wanted = run({}, synchronize);
      ASSERT_TRUE(are_finite(wanted)) << name_of(scheme) << ", " << tokens << " tokens";
      OwnedStream stream;
      for (int repeat = 0; repeat < 3; ++repeat) {
        ASSERT_TRUE(run(stream, [] {}) == wanted)
            << name_of(scheme) << ", " << tokens << " tokens, repeat " << repeat;
      }
    }
  }
}

// Products for which the device finds out whether they are folded or exact, in turns one and the
// other, each of the quantized output of the one ahead: in one kernel, or, as batches are, in
// several, of which those that are not chosen let the next ones start before the chosen one is
// over.
TEST_F(CudaChains, AutomaticProductsOfEachOther) {
  constexpr std::int64_t width = 1024;
  const CudaGemmCapabilities capabilities = cuda::gemm_capabilities("test", first_cuda_device);
  for (const auto& [batch, rows] :
       {std::pair<std::int64_t, std::int64_t>{1, 96}, {1, 300}, {1, 2200}, {2, 96}, {3, 300}}) {
    Tensor blank(DType::bfloat16, {batch, rows, width});
    Tensor weights(DType::bfloat16, {batch, width, width});
    Quantized blank_q(Scheme::mxfp8_e4m3, blank.shape(), ScaleLayout::row_major);
    Quantized blank_w(Scheme::mxfp8_e4m3, weights.shape(), ScaleLayout::row_major);
    Tensor start = blank;
    fill_even(start, 7);
    DeviceTensor first(start), y(blank);
    DeviceQuantized q(blank_q), narrow(blank_w), wide(blank_w);
    for (DeviceQuantized* w : {&narrow, &wide}) {
      fill_even(weights, 8, w == &wide ? 12 : 0);
      DeviceTensor on_device(weights);
      quantize(on_device.buffer(), w->view(), {}, {});
      synchronize();
    }
    const GemmOptions options{.alpha = 1.0f / 50.0f};
    const std::size_t bytes = gemm_workspace_bytes(q.view(), wide.view(), y.buffer(), options);
    DeviceBytes memory(bytes);
    if (capabilities.is_hopper()) {
      const CudaGemmPlan plan = plan_gemm_cuda(
          {q.view(), wide.view(), y.buffer(), GemmPrecision::automatic}, capabilities);
      ASSERT_EQ(plan.path, CudaGemmPath::folded_or_exact);
      ASSERT_EQ(plan.is_in_one_kernel, batch == 1) << rows << " rows";
    }
    const auto run = [&](Stream stream, const Between& after) {
      quantize(first.buffer(), q.view(), {}, stream), after();
      for (int round = 0; round < rounds; ++round) {
        const BlockScaled& w = round % 3 == 1 ? wide.view() : narrow.view();
        gemm(q.view(), w, y.buffer(), options, {memory.data(), bytes}, stream), after();
        quantize(y.buffer(), q.view(), {}, stream), after();
      }
    };
    const auto result = [&] {
      synchronize();
      y.copy_to(blank);
      const GuardedBytes& host = blank.bytes();
      check_cuda(cudaMemset(y.buffer().data, 0xA5, static_cast<std::size_t>(host.size())));
      synchronize();
      return std::vector<std::uint8_t>(host.data(), host.data() + host.size());
    };
    run({}, synchronize);
    const auto wanted = result();
    ASSERT_TRUE(are_finite(wanted)) << rows << " rows";
    OwnedStream stream;
    for (int repeat = 0; repeat < 3; ++repeat) {
      run(stream, [] {});
      ASSERT_TRUE(result() == wanted) << batch << " x " << rows << " rows, repeat " << repeat;
    }
    const OwnedGraph graph(stream, [&] { run(stream, [] {}); });
    for (int repeat = 0; repeat < 3; ++repeat) {
      graph.launch(stream);
      ASSERT_TRUE(result() == wanted) << batch << " x " << rows << " rows in a graph";
    }
  }
}

}  // namespace
}  // namespace mxkern
