// A grid of CUDA blocks on a CPU, for kernels whose blocks wait for each other: a thread for each block, one of which
// runs at a time, and a fiber for each of its CUDA threads. The threads of a block run in a random order between two
// barriers. Another block can go on at each barrier of a block, and where a thread is about to load or to change a
// counter in global memory; the caller gives the order or a seed. For tests only.
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

// The fibers of one block. CUDA promises no order of the threads between two barriers, so they run in a random one.
class Block {
 public:
  Block(uint32_t threads, unsigned seed, std::function<void()> const& kernel)
      : kernel_(kernel), fibers_(threads), stacks_(threads, std::vector<char>(1 << 15)), waits_(threads, Barrier::none),
        random_(seed) {}

  void run() {
    for (size_t i = 0; i < fibers_.size(); ++i) {
      getcontext(&fibers_[i]);
      fibers_[i].uc_stack.ss_sp = stacks_[i].data();
      fibers_[i].uc_stack.ss_size = stacks_[i].size();
      fibers_[i].uc_link = &main_;
      makecontext(&fibers_[i], reinterpret_cast<void (*)()>(&Block::enter), 0);
    }
    mine() = this;
    while (true) {
      std::vector<size_t> able = those_at(Barrier::none);
      if (able.empty() && !open_barrier()) return;
      std::shuffle(able.begin(), able.end(), random_);
      for (size_t i : able) {
        current_ = i;
        threadIdx.x = static_cast<uint32_t>(i);
        swapcontext(&main_, &fibers_[i]);
      }
    }
  }

  // Wait for the other threads of the block.
  static void barrier() { mine()->wait(Barrier::block); }
  // Wait for the other threads of the warp.
  static void warp_barrier() { mine()->wait(Barrier::warp); }

 private:
  enum class Barrier { none, warp, block, end };

  static Block*& mine() {
    static thread_local Block* block;
    return block;
  }
  static void enter() {
    Block* block = mine();
    block->kernel_();
    block->waits_[block->current_] = Barrier::end;
  }
  void wait(Barrier where) {
    waits_[current_] = where;
    swapcontext(&fibers_[current_], &main_);
  }
  std::vector<size_t> those_at(Barrier where) const {
    std::vector<size_t> found;
    for (size_t i = 0; i < waits_.size(); ++i) {
      if (waits_[i] == where) found.push_back(i);
    }
    return found;
  }
  // Let the threads go on that wait in warps, or else all; false where all have ended.
  bool open_barrier();

  std::function<void()> const& kernel_;
  ucontext_t main_{};
  std::vector<ucontext_t> fibers_;
  std::vector<std::vector<char>> stacks_;
  std::vector<Barrier> waits_;
  std::mt19937 random_;
  size_t current_ = 0;
};

inline void __syncthreads() { Block::barrier(); }

// For what all threads of a warp call.
template <class T>
T __shfl_down_sync(unsigned, T value, unsigned down) {
  static thread_local T given[1024];
  given[threadIdx.x] = value;
  Block::warp_barrier();
  T const said = threadIdx.x % 32 + down < 32 ? given[threadIdx.x + down] : value;
  Block::warp_barrier();
  return said;
}

// Which block goes on: of those that can, the first in `order`. Where no order is given, it is a random one, and another
// one now and then; how often depends on the seed, for a race may need a block that is late by some steps or by rows.
class Grid {
 public:
  static Grid& get() {
    static Grid grid;
    return grid;
  }

  // Blocks that wait forever; none where all came to their end.
  std::vector<size_t> launch(uint32_t blocks, uint32_t threads, std::vector<size_t> const& order, unsigned seed,
                             std::function<void()> kernel) {
    gridDim.x = blocks;
    states_.assign(blocks, State{});
    order_.clear();
    for (size_t b : order) {
      if (b < blocks) order_.push_back(b);
    }
    random_.seed(seed);
    steps_an_order_ = 0;
    if (order_.empty()) {
      steps_an_order_ = 4u << (4 * (seed % 3));
      for (size_t b = 0; b < blocks; ++b) order_.push_back(b);
      std::shuffle(order_.begin(), order_.end(), random_);
    }
    hung_ = false;
    turn_ = pick();
    std::vector<std::thread> running;
    for (uint32_t b = 0; b < blocks; ++b) {
      running.emplace_back([&, b] {
        blockIdx.x = b;
        await(b);
        Block(threads, seed * blocks + b, kernel).run();
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

  // What a thread wrote before is seen by whom it tells of it next; and it sees what those wrote whom it counted after.
  void fence() {
    states_[blockIdx.x].fenced = static_cast<int>(threadIdx.x);
    acquire();
  }
  // A block goes on from a barrier: its threads rely on what the one that counted it has seen.
  void go_on() {
    unfenced += sees_others && states_[blockIdx.x].counted >= 0;
    states_[blockIdx.x].counted = -1;
    step();
  }

  // Whether a counter is one by which blocks tell each other of what they wrote.
  std::function<bool(int const*)> tells = [](int const*) { return false; };
  // Whether one that adds to such a counter relies on what those wrote that added to it before.
  bool sees_others = true;
  // How often such a counter was added to without a fence just before, or without a fence or a load of it just after.
  size_t unfenced = 0;

  // A step of a block that changes no counter.
  void step() {
    states_[blockIdx.x].polled = false;
    states_[blockIdx.x].fenced = -1;
    give_way(nullptr);
  }

  int load(int* counter) {
    acquire();
    give_way(counter);
    State& state = states_[blockIdx.x];
    state.polled = true;
    return state.seen = *counter;
  }

  int change(int* counter, int value, bool add) {
    unfenced += add && tells(counter) && states_[blockIdx.x].fenced != static_cast<int>(threadIdx.x);
    step();
    int const before = *counter;
    *counter = add ? before + value : value;
    if (add && tells(counter)) states_[blockIdx.x].counted = static_cast<int>(threadIdx.x);
    step();  // other blocks can be ahead of what the threads of this one do next
    return before;
  }

 private:
  struct State {
    bool done = false, polled = false;
    int seen = 0, fenced = -1, counted = -1;
    int* counter = nullptr;
    // What it saw last was not what it waits for, and is still so.
    bool stuck() const { return polled && counter && *counter == seen; }
  };

  void acquire() {
    int& counted = states_[blockIdx.x].counted;
    if (counted == static_cast<int>(threadIdx.x)) counted = -1;
  }

  bool all_done() const {
    return std::all_of(states_.begin(), states_.end(), [](State const& s) { return s.done; });
  }

  size_t pick() {
    if (steps_an_order_ && random_() % steps_an_order_ == 0) std::shuffle(order_.begin(), order_.end(), random_);
    for (size_t b : order_) {
      if (!states_[b].done && !states_[b].stuck()) return b;
    }
    hung_ = !all_done();
    return states_.size();
  }

  void give_way(int* counter) {
    {
      std::unique_lock<std::mutex> held(lock_);
      states_[blockIdx.x].counter = counter;
      turn_ = pick();
      if (turn_ == blockIdx.x) return;
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
  unsigned steps_an_order_ = 0;
  size_t turn_ = 0;
  bool hung_ = false;
};

inline bool Block::open_barrier() {
  auto in_warps = those_at(Barrier::warp);
  auto const& waiting = in_warps.empty() ? those_at(Barrier::block) : in_warps;
  for (size_t i : waiting) waits_[i] = Barrier::none;
  if (in_warps.empty() && !waiting.empty()) Grid::get().go_on();
  return !waiting.empty();
}

inline void __threadfence() { Grid::get().fence(); }
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
