// cpu/parallel.cc: the worker threads of the CPU backend. They live as long as the process:
// starting threads for every call would cost more than many calls.
#include "cpu/parallel.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "mxkern/core/float_environment.h"

namespace mxkern::cpu {
namespace {

int count_threads() {
  int cores = static_cast<int>(std::thread::hardware_concurrency());
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) cores = CPU_COUNT(&set);
  if (const char* text = std::getenv("MXKERN_NUM_THREADS")) {
    char* end = nullptr;
    const long wanted = std::strtol(text, &end, 10);
    // What is no whole number says nothing.
    if (*end == '\0' && wanted > 0) cores = static_cast<int>(std::min<long>(cores, wanted));
  }
  return std::max(cores, 1);
}

// One piece of work, shared by the caller and the workers that join it.
struct Job {
  detail::RangeFunction function;
  void* context;
  std::int64_t count;
  std::int64_t chunk;
  std::atomic<std::int64_t> next{0};
  std::atomic<bool> failed{false};
  std::exception_ptr error;

  void run() {
    const FloatEnvironment environment;
    try {
      for (;;) {
        const std::int64_t begin = next.fetch_add(chunk);
        if (begin >= count) return;
        function(context, begin, std::min(begin + chunk, count));
      }
    } catch (...) {
      if (!failed.exchange(true)) error = std::current_exception();
      next.store(count);
    }
  }
};

// Threads that start meanwhile leave signals to those of the program, which may wait for them.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

class Workers {
 public:
  // As many as there can be: a system that has no more threads leaves more to each, or to the
  // caller alone.
  explicit Workers(int helpers) {
    threads_.reserve(static_cast<std::size_t>(helpers));
    const SignalsBlocked blocked;
    try {
      while (helpers-- > 0) threads_.emplace_back([this] { serve(); });
    } catch (const std::exception&) {
    }
  }

  void run(Job& job) {
    {
      const std::lock_guard lock(mutex_);
      job_ = &job;
      ++generation_;
    }
    start_.notify_all();
    job.run();
    // Nothing is left to take: workers that wake up from now on are too late, and are not waited
    // for.
    std::unique_lock lock(mutex_);
    job_ = nullptr;
    done_.wait(lock, [this] { return active_ == 0; });
  }

 private:
  void serve() {
    std::uint64_t seen = 0;
    for (;;) {
      Job* job;
      {
        std::unique_lock lock(mutex_);
        start_.wait(lock, [&] { return generation_ != seen; });
        seen = generation_;
        job = job_;
        if (job == nullptr) continue;
        ++active_;
      }
      job->run();
      const std::lock_guard lock(mutex_);
      if (--active_ == 0) done_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable start_;
  std::condition_variable done_;
  Job* job_ = nullptr;
  std::uint64_t generation_ = 0;
  int active_ = 0;
  std::vector<std::thread> threads_;
};

// Workers are never destroyed: they sleep until the process ends. A forked child has none of its
// parent's threads, so it forgets them and starts its own.
std::atomic<Workers*> workers{nullptr};
std::atomic<bool> busy{false};

void forget_workers() {
  workers.store(nullptr);
  busy.store(false);
}

Workers& get_workers() {
  Workers* current = workers.load();
  if (current == nullptr) {
    static const int registered = pthread_atfork(nullptr, nullptr, forget_workers);
    static_cast<void>(registered);
    current = new Workers(thread_count() - 1);
    workers.store(current);
  }
  return *current;
}

}  // namespace

int thread_count() {
  static const int count = count_threads();
  return count;
}

void detail::parallel_for(std::int64_t count, std::int64_t grain, RangeFunction function,
                          void* context) {
  if (count <= 0) return;
  const int threads = thread_count();
  if (count <= grain || threads == 1 || busy.exchange(true)) {
    const FloatEnvironment environment;
    return function(context, 0, count);
  }
  struct Release {
    ~Release() { busy.store(false); }
  } release;
  // Several chunks a thread even out cores of unequal speed.
  Job job{function, context, count, std::max(grain, count / (threads * 8) + 1), {}, {}, {}};
  get_workers().run(job);
  if (job.error) std::rethrow_exception(job.error);
}

}  // namespace mxkern::cpu
