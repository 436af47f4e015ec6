// tests/cpu/runtime/parallel_test.cc: ranges of work over several threads.
#include "cpu/runtime/parallel.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <vector>

#include "mxkern/threads.h"

namespace mxkern::cpu {
namespace {

// How often each index was visited.
std::vector<int> visits(std::int64_t count, std::int64_t grain) {
  std::vector<int> seen(static_cast<std::size_t>(count));
  parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
  });
  return seen;
}

bool all_once(const std::vector<int>& seen) {
  return std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; });
}

TEST(Parallel, VisitsEveryIndexOnce) {
  for (const std::int64_t count : {0, 1, 2, 3, 100, 1001, 100000}) {
    for (const std::int64_t grain : {1, 7, 1000, 1000000}) {
      EXPECT_TRUE(all_once(visits(count, grain))) << count << ", grain " << grain;
    }
  }
}

// Whether a call has more than one thread: each waits for another one, 5 s at most.
bool threads_meet() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  std::mutex mutex;
  std::condition_variable came;
  std::set<std::thread::id> threads;
  parallel_for(1000, 1, [&](std::int64_t, std::int64_t) {
    std::unique_lock lock(mutex);
    threads.insert(std::this_thread::get_id());
    came.notify_all();
    came.wait_until(lock, deadline, [&] { return threads.size() > 1; });
  });
  return threads.size() > 1;
}

TEST(Parallel, EveryCallHasSeveralThreads) {
  if (num_threads() < 2) GTEST_SKIP() << "one thread";
  for (int call = 0; call < 2; ++call) EXPECT_TRUE(threads_meet()) << "call " << call;
}

// A program that waits for its signals in a thread of its own blocks them in all others it knows.
TEST(Parallel, WorkersTakeNoSignals) {
  if (num_threads() < 2) GTEST_SKIP() << "one thread";
  const pid_t child = fork();
  if (child == 0) {
    visits(100000, 1);  // starts workers
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    kill(getpid(), SIGTERM);
    int signal = 0;
    _exit(sigwait(&set, &signal) == 0 && signal == SIGTERM ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Parallel, AnExceptionReachesTheCallerAndTheNextCallWorks) {
  const auto fail = [](std::int64_t begin, std::int64_t end) {
    if (begin <= 500 && 500 < end) throw std::runtime_error("the 500th");
  };
  EXPECT_THROW(parallel_for(1000, 1, fail), std::runtime_error);
  EXPECT_THROW(parallel_for(1000, 2000, fail), std::runtime_error);
  EXPECT_TRUE(all_once(visits(1000, 1)));
}

TEST(Parallel, NestedAndConcurrentCallsFinish) {
  std::atomic<int> total{0};
  const auto add = [&](std::int64_t begin, std::int64_t end) {
    total += static_cast<int>(end - begin);
  };
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      for (int repeat = 0; repeat < 50; ++repeat) {
        parallel_for(10, 1, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t j = begin; j < end; ++j) parallel_for(10, 1, add);
        });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(total, 4 * 50 * 100);
}

TEST(Parallel, AForkedChildHasThreadsOfItsOwn) {
  ASSERT_TRUE(all_once(visits(1000, 1)));
  const pid_t child = fork();
  if (child == 0) _exit(all_once(visits(1000, 1)) ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

TEST(Parallel, WithoutThreadsTheCallerWorksAlone) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit none = {0, 0};
    constexpr uid_t nobody = 65534;  // root may start threads whatever the limit is
    if (setrlimit(RLIMIT_NPROC, &none) != 0 || (getuid() == 0 && setuid(nobody) != 0)) _exit(2);
    try {
      std::thread([] {}).join();
      _exit(2);
    } catch (const std::system_error&) {
    }
    _exit(all_once(visits(1000, 1)) && all_once(visits(1000, 1)) ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "status " << status;
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "this system does not limit the number of threads";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace mxkern::cpu
