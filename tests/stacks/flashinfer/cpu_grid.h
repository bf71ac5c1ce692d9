// A grid of CUDA blocks on a CPU, for kernels whose blocks wait for each other: a thread for each block, one of which
// runs at a time, and a fiber for each of its CUDA threads. Which block goes on is chosen where one is about to load or
// to change a counter in global memory, by a schedule that the caller gives. For tests only.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ thread_local  // a block is a thread

struct Index {
  uint32_t x = 0;
};
inline thread_local Index threadIdx, blockIdx;
inline Index gridDim;

// The fibers of one block. Its thread 0 comes last between two barriers: what the others wrote is there when it
// tells other blocks.
class Block {
 public:
  Block(uint32_t threads, std::function<void()> const& kernel)
      : kernel_(kernel), fibers_(threads), stacks_(threads, std::vector<char>(1 << 15)), done_(threads) {}

  void run() {
    for (size_t i = 0; i < fibers_.size(); ++i) {
      getcontext(&fibers_[i]);
      fibers_[i].uc_stack.ss_sp = stacks_[i].data();
      fibers_[i].uc_stack.ss_size = stacks_[i].size();
      fibers_[i].uc_link = &main_;
      makecontext(&fibers_[i], reinterpret_cast<void (*)()>(&Block::enter), 0);
    }
    mine() = this;
    while (std::find(done_.begin(), done_.end(), false) != done_.end()) {
      for (size_t i = fibers_.size(); i-- > 0;) {
        if (done_[i]) continue;
        current_ = i;
        threadIdx.x = static_cast<uint32_t>(i);
        swapcontext(&main_, &fibers_[i]);
      }
    }
  }

  static void barrier() { swapcontext(&mine()->fibers_[mine()->current_], &mine()->main_); }

 private:
  static Block*& mine() {
    static thread_local Block* block;
    return block;
  }
  static void enter() {
    Block* block = mine();
    block->kernel_();
    block->done_[block->current_] = true;
  }

  std::function<void()> const& kernel_;
  ucontext_t main_{};
  std::vector<ucontext_t> fibers_;
  std::vector<std::vector<char>> stacks_;
  std::vector<bool> done_;
  size_t current_ = 0;
};

inline void __syncthreads() { Block::barrier(); }
inline void __threadfence() {}

// For what all threads of a block call.
template <class T>
T __shfl_down_sync(unsigned, T value, unsigned down) {
  static thread_local T given[1024];
  given[threadIdx.x] = value;
  __syncthreads();
  T const said = threadIdx.x % 32 + down < 32 ? given[threadIdx.x + down] : value;
  __syncthreads();
  return said;
}

// Which block goes on: of those that can, the first in `order`, or any, as `seed` has it, where order is empty.
class Grid {
 public:
  static Grid& get() {
    static Grid grid;
    return grid;
  }

  // Blocks that wait forever; none where all came to their end.
  std::vector<size_t> launch(uint32_t blocks, uint32_t threads, std::vector<size_t> order, unsigned seed,
                             std::function<void()> kernel) {
    gridDim.x = blocks;
    states_.assign(blocks, State{});
    order_ = std::move(order);
    random_.seed(seed);
    hung_ = false;
    turn_ = pick();
    std::vector<std::thread> running;
    for (uint32_t b = 0; b < blocks; ++b) {
      running.emplace_back([&, b] {
        blockIdx.x = b;
        await(b);
        Block(threads, kernel).run();
        std::unique_lock<std::mutex> held(lock_);
        states_[b].done = true;
        turn_ = pick();
        changed_.notify_all();
      });
    }
    std::unique_lock<std::mutex> held(lock_);
    changed_.wait(held, [&] { return hung_ || all_done(); });
    std::vector<size_t> waiting;
    for (size_t b = 0; hung_ && b < states_.size(); ++b) {
      if (!states_[b].done) waiting.push_back(b);
    }
    held.unlock();
    for (auto& thread : running) hung_ ? thread.detach() : thread.join();
    return waiting;
  }

  int load(int* counter) {
    give_way(counter);
    State& state = states_[blockIdx.x];
    state.polled = true;
    return state.seen = *counter;
  }

  int change(int* counter, int value, bool add) {
    states_[blockIdx.x].polled = false;
    give_way(nullptr);
    int const before = *counter;
    *counter = add ? before + value : value;
    return before;
  }

 private:
  struct State {
    bool done = false, polled = false;
    int seen = 0;
    int* counter = nullptr;
    // What it saw last was not what it waits for, and is still so.
    bool stuck() const { return polled && counter && *counter == seen; }
  };

  bool all_done() const {
    return std::all_of(states_.begin(), states_.end(), [](State const& s) { return s.done; });
  }

  size_t pick() {
    std::vector<size_t> able;
    for (size_t i = 0; i < states_.size(); ++i) {
      size_t const b = order_.empty() ? i : order_[i];
      if (!states_[b].done && !states_[b].stuck()) able.push_back(b);
    }
    if (able.empty()) {
      hung_ = !all_done();
      return states_.size();
    }
    return order_.empty() ? able[random_() % able.size()] : able.front();
  }

  void give_way(int* counter) {
    {
      std::unique_lock<std::mutex> held(lock_);
      states_[blockIdx.x].counter = counter;
      turn_ = pick();
      changed_.notify_all();
    }
    await(blockIdx.x);
  }

  void await(size_t b) {
    std::unique_lock<std::mutex> held(lock_);
    changed_.wait(held, [&] { return turn_ == b; });
  }

  std::mutex lock_;
  std::condition_variable changed_;
  std::vector<State> states_;
  std::vector<size_t> order_;
  std::mt19937 random_;
  size_t turn_ = 0;
  bool hung_ = false;
};

inline int atomicAdd(int* counter, int value) { return Grid::get().change(counter, value, true); }
inline int atomicExch(int* counter, int value) { return Grid::get().change(counter, value, false); }
// Only one block runs at a time, and gives way nowhere else.
template <class T>
T atomicAdd(T* sum, T value) {
  T const before = *sum;
  *sum = before + value;
  return before;
}
inline uint32_t atomicAdd(uint32_t* sum, int value) { return atomicAdd(sum, static_cast<uint32_t>(value)); }
