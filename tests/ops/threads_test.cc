// tests/ops/threads_test.cc: the number of threads: who says it, what is refused, and that it may
// change at any time.
#include "mxkern/threads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "cpu/runtime/cpu_quota.h"
#include "cpu/runtime/parallel.h"
#include "mxkern/core/error.h"
#include "mxkern/info.h"
#include "mxkern/mxkern.h"
#include "tests/support/error_message.h"
#include "cpu/runtime/thread_count.h"

namespace mxkern {
namespace {

using cpu::no_quota;

// Gives the number back that held before.
class Threads : public testing::Test {
 protected:
  ~Threads() override { set_num_threads(before_); }
  const int before_ = num_threads();
};

TEST(ThreadCount, TheEnvironmentThenTheQuotaThenTheProcessors) {
  EXPECT_EQ(default_thread_count(nullptr, 8, no_quota).threads, 8);
  EXPECT_EQ(default_thread_count("", 8, no_quota).threads, 8);
  EXPECT_EQ(default_thread_count(nullptr, 8, 3).threads, 3);
  EXPECT_EQ(default_thread_count(nullptr, 8, 9).threads, 8);
  EXPECT_EQ(default_thread_count(nullptr, 0, no_quota).threads, 1);
  EXPECT_EQ(default_thread_count(nullptr, 5000, no_quota).threads, most_threads);
  EXPECT_EQ(default_thread_count("5", 8, 3).threads, 5);
  EXPECT_EQ(default_thread_count("16", 8, 3).threads, 16);
  EXPECT_EQ(default_thread_count("4096", 8, 3).threads, 4096);
  EXPECT_STREQ(default_thread_count("5", 8, 3).from, "MXKERN_NUM_THREADS");
  EXPECT_STREQ(default_thread_count(nullptr, 8, 3).from, "the CPU quota of the control group");
  EXPECT_STREQ(default_thread_count(nullptr, 8, 8).from, "the processors of this process");
}

TEST(ThreadCount, WhatIsNoNumberOfThreadsIsRefused) {
  for (const char* said : {"abc", "0", "-3", "1e3", "99999999999", "4097", "2 ", " 2", "+2", "2.0",
                           "0x2", "99999999999999999999999"}) {
    EXPECT_EQ(test::error_message([&] { default_thread_count(said, 8, no_quota); }),
              std::string("MXKERN_NUM_THREADS is '") + said +
                  "'; expected a whole number from 1 to 4096; correct the environment variable, "
                  "unset it, or call set_num_threads");
  }
}

TEST_F(Threads, AreThoseThatWereSet) {
  for (const int n : {1, 3, 2, 7}) {
    set_num_threads(n);
    EXPECT_EQ(num_threads(), n);
    EXPECT_EQ(info().threads, n);
    EXPECT_EQ(info().threads_from, "set_num_threads");
  }
  for (const int n : {0, -1, 4097}) {
    EXPECT_EQ(test::error_message([&] { set_num_threads(n); }),
              "set_num_threads: n is " + std::to_string(n) + "; expected 1 to 4096");
  }
  EXPECT_EQ(num_threads(), 7);
}

// The most threads that are in a piece of work together. Each waits until `wanted` are, for 5 s at
// most, and a little longer for one too many.
int most_at_once(int wanted, int limit) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  std::atomic<int> inside{0}, most{0};
  const auto work = [&](std::int64_t, std::int64_t) {
    const int now = ++inside;
    for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
    }
    while (most < wanted && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    --inside;
  };
  cpu::parallel_for(64, 1, work, limit);
  return most;
}

TEST_F(Threads, AreAsManyAsWasSaidWhetherMoreOrFewerThanBefore) {
  constexpr int no_limit = 1000;
  for (const int n : {1, 4, 2, 5, 1, 3}) {
    set_num_threads(n);
    EXPECT_EQ(most_at_once(n, no_limit), n);
    EXPECT_EQ(most_at_once(std::min(n, 2), 2), std::min(n, 2));
  }
}

TEST_F(Threads, WorkingMemoryThatWasAskedForKeepsFitting) {
  const Shape shape{1, 700, 64};
  const OwnedBlockScaled q(Scheme::mxfp8_e4m3, shape);
  std::vector<float> memory(700 * 700);
  const Buffer out = Buffer::dense(memory.data(), DType::float32, {1, 700, 700});
  const std::size_t bytes = gemm_workspace_bytes(q, q, out);
  EXPECT_GT(bytes, 0u);
  for (const int n : {1, 64, 3}) {
    set_num_threads(n);
    EXPECT_EQ(gemm_workspace_bytes(q, q, out), bytes) << n;
  }
}

// The bytes stay the same.
TEST_F(Threads, MayChangeDuringCalls) {
  const Shape shape{1, 300, 512}, out_shape{1, 300, 300};
  std::vector<float> x(static_cast<std::size_t>(shape.size()));
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(i * 2654435761u % 1000) - 500;
  const Buffer input = Buffer::dense(x.data(), DType::float32, shape);
  const auto product = [&] {
    std::vector<float> out(static_cast<std::size_t>(out_shape.size()));
    const OwnedBlockScaled q = quantize(input, Scheme::nvfp4);
    gemm(q, q, Buffer::dense(out.data(), DType::float32, out_shape));
    return out;
  };
  const std::vector<float> want = product();

  std::atomic<bool> done{false};
  std::thread setter([&] {
    for (int n = 1; !done; n = n % 6 + 1) set_num_threads(n);
  });
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i) {
    callers.emplace_back([&] {
      for (int call = 0; call < 30; ++call) EXPECT_EQ(product(), want);
    });
  }
  for (std::thread& caller : callers) caller.join();
  done = true;
  setter.join();
}

}  // namespace
}  // namespace mxkern
