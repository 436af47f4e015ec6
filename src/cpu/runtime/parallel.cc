// cpu/runtime/parallel.cc: the worker threads of the CPU backend. They live as long as the process:
// starting threads for every call would cost more than many calls.
#include "cpu/runtime/parallel.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "mxkern/core/float_environment.h"
#include "mxkern/threads.h"

namespace mxkern::cpu {
namespace {

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
  // Starts threads until there are as many, or as many as there can be: a system that has no more
  // threads leaves more to each, or to the caller alone, and is not asked again.
  void grow(int helpers) {
    if (helpers <= asked_) return;
    const SignalsBlocked blocked;
    try {
      threads_.reserve(static_cast<std::size_t>(helpers));
      for (; asked_ < helpers; ++asked_) threads_.emplace_back([this] { serve(); });
    } catch (const std::exception&) {
      asked_ = helpers;
    }
  }

  // At most so many workers join.
  void run(Job& job, int helpers) {
    {
      const std::lock_guard lock(mutex_);
      job_ = &job;
      seats_ = helpers;
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
        if (job == nullptr || seats_ == 0) continue;
        --seats_;
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
  int seats_ = 0;
  int active_ = 0;
  int asked_ = 0;
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

Workers& get_workers(int helpers) {
  Workers* current = workers.load();
  if (current == nullptr) {
    static const int registered = pthread_atfork(nullptr, nullptr, forget_workers);
    static_cast<void>(registered);
    current = new Workers;
    workers.store(current);
  }
  current->grow(helpers);
  return *current;
}

}  // namespace

void detail::parallel_for(std::int64_t count, std::int64_t grain, int most_at_once,
                          RangeFunction function, void* context) {
  if (count <= 0) return;
  const int threads = std::min(num_threads(), most_at_once);
  if (count <= grain || threads == 1 || busy.exchange(true)) {
    const FloatEnvironment environment;
    return function(context, 0, count);
  }
  struct Release {
    ~Release() { busy.store(false); }
  } release;
  // Several chunks a thread even out cores of unequal speed.
  Job job{function, context, count, std::max(grain, count / (threads * 8) + 1), {}, {}, {}};
  get_workers(threads - 1).run(job, threads - 1);
  if (job.error) std::rethrow_exception(job.error);
}

}  // namespace mxkern::cpu
