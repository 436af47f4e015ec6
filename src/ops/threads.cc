// ops/threads.cc: the number of threads: what the program, the environment or the system says.
#include "mxkern/threads.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "cpu/runtime/cpu_quota.h"
#include "mxkern/core/error.h"
#include "cpu/runtime/thread_count.h"

namespace mxkern {
namespace {

// What set_num_threads was given, or 0.
std::atomic<int> chosen{0};

int count_processors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

ThreadCount default_thread_count(const char* said, int processors, int quota) {
  const std::string_view text = said == nullptr ? "" : said;
  if (!text.empty()) {
    int number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    check(error == std::errc() && end == text.data() + text.size() && number >= 1 &&
              number <= most_threads,
          "MXKERN_NUM_THREADS is '", text, "'; expected a whole number from 1 to ", most_threads,
          "; correct the environment variable, unset it, or call set_num_threads");
    return {number, "MXKERN_NUM_THREADS"};
  }
  processors = std::max(processors, 1);
  if (quota < processors) return {quota, "the CPU quota of the control group"};
  return {std::min(processors, most_threads), "the processors of this process"};
}

ThreadCount thread_count() {
  if (const int n = chosen.load(std::memory_order_relaxed)) return {n, "set_num_threads"};
  // Where this throws, the next call tries again.
  static const ThreadCount found =
      default_thread_count(std::getenv("MXKERN_NUM_THREADS"), count_processors(), cpu::cpu_quota());
  return found;
}

int num_threads() { return thread_count().threads; }

void set_num_threads(int n) {
  check(n >= 1 && n <= most_threads, "set_num_threads: n is ", n, "; expected 1 to ", most_threads);
  chosen.store(n, std::memory_order_relaxed);
}

}  // namespace mxkern
