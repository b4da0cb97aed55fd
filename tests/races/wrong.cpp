// SPDX-License-Identifier: Apache-2.0
// Programs with a race between the program and a channel, or between two streams. `// HERE` is on the two lines of each
// that ThreadSanitizer has to name; on others `// or` is on a third, which is one of them where the other end is
// another process.
#include <atomic>
#include <thread>

#include "tests/races/program.hpp"

namespace {

using sluice::Context, sluice::HostStream, sluice::Slice, sluice::Stream;

/// Without an acquire the slot is the channel's.
void write_after_put(Context& ctx) {
  HostStream thread;
  const Stream stream = Stream::host(thread);
  Ends ends(ctx);
  if (ctx.rank() == 0) {
    const Slice slot = ends.out.acquire(stream);
    fill(slot, 1);
    ends.out.put(stream);  // HERE
    fill(slot, 2);         // HERE
  } else {
    ends.in.wait(stream);
    ends.in.release(stream);
  }
  ctx.synchronize(stream);
}

/// On a stream `acquire` returns at once; the slot is free when the stream gets there.
void write_before_the_stream_acquires(Context& ctx) {
  HostStream thread;
  const Stream stream = Stream::host(thread);
  Ends ends(ctx);
  for (std::uint64_t n = 1; n <= 2; ++n) {
    if (ctx.rank() == 0) {
      fill(ends.out.acquire(stream), n);  // HERE
      ends.out.put(stream);               // HERE
    } else {
      ends.in.wait(stream);
      ends.in.release(stream);
    }
  }
  ctx.synchronize(stream);
}

/// After the release the sender may overwrite the slot.
void read_after_release(Context& ctx) {
  const Stream order;
  Ends ends(ctx);
  for (std::uint64_t n = 1; n <= 2; ++n) {
    if (ctx.rank() == 0) {
      fill(ends.out.acquire(order), n);
      ends.out.put(order);  // HERE
    } else {
      const Slice slot = ends.in.wait(order);  // or
      ends.in.release(order);
      keep(sum(slot));  // HERE
    }
  }
}

/// On a stream `wait` returns at once; the bytes are there when the stream gets there.
void read_before_synchronize(Context& ctx) {
  HostStream thread;
  const Stream stream = Stream::host(thread);
  Ends ends(ctx);
  if (ctx.rank() == 0) {
    fill(ends.out.acquire(stream), 1);
    ends.out.put(stream);  // HERE
  } else {
    const Slice slot = ends.in.wait(stream);  // or
    keep(sum(slot));                          // HERE
    ends.in.release(stream);
  }
  ctx.synchronize(stream);
}

/// Streams are ordered by events alone.
void two_streams_without_event(Context& ctx) {
  HostStream first, second;
  std::uint64_t number = 0;
  first.run([&] { number = 1; });     // HERE
  second.run([&] { keep(number); });  // HERE
  ctx.synchronize(Stream::host(first));
  ctx.synchronize(Stream::host(second));
}

/// Writes to the source after a put that a callable has enqueued behind many others: beyond the capacity of the stream,
/// items wait in another place.
void write_after_put_in_a_callable(Context& ctx) {
  HostStream thread({.capacity = 16});
  const Stream stream = Stream::host(thread);
  Ends ends(ctx);
  if (ctx.rank() == 0) {
    std::atomic<bool> enqueued{false};
    thread.run([&] {
      for (int n = 0; n < 20; ++n) thread.run([] {});
      ends.out.put(stream);  // HERE
      enqueued.store(true, std::memory_order_relaxed);
    });
    while (!enqueued.load(std::memory_order_relaxed)) std::this_thread::yield();
    fill(ends.memory.slice(0, kBytes), 2);  // HERE
    ctx.synchronize(stream);
  } else {
    ends.in.wait(stream);
    ends.in.release(stream);
  }
  ctx.synchronize(stream);
}

/// The engine, or a NIC, reads the slots of a plan after `start` has returned.
void write_after_start_of_plan(Context& ctx) {
  HostStream thread;
  const Stream stream = Stream::host(thread);
  Ends ends(ctx);
  sluice::Plan plan = ctx.plan();
  if (ctx.rank() == 0) {
    plan.add(ends.out).commit(stream);
    plan.acquire(stream);
    fill(plan.slot(ends.out), 1);
    plan.start(stream);                     // HERE
    fill(ends.memory.slice(0, kBytes), 2);  // HERE
  } else {
    plan.add(ends.in).commit(stream);
    plan.wait(stream);
    plan.release(stream);
  }
  ctx.synchronize(stream);
}

/// Over a network a put in program order is under way when it returns. Between ranks of one host it has moved its
/// bytes.
void write_before_drain(Context& ctx) {
  const Stream order;
  Ends ends(ctx);
  if (ctx.rank() == 0) {
    const Slice slot = ends.out.acquire(order);
    fill(slot, 1);
    ends.out.put(order);  // HERE
    fill(slot, 2);        // HERE
    ends.out.drain();
  } else {
    ends.in.wait(order);
    ends.in.release(order);
  }
}

constexpr Program kPrograms[] = {
    {"write_after_put", write_after_put},
    {"write_before_the_stream_acquires", write_before_the_stream_acquires},
    {"read_after_release", read_after_release},
    {"read_before_synchronize", read_before_synchronize},
    {"two_streams_without_event", two_streams_without_event},
    {"write_after_put_in_a_callable", write_after_put_in_a_callable},
    {"write_after_start_of_plan", write_after_start_of_plan},
    {"write_before_drain", write_before_drain},
};

}  // namespace

int main(int argc, char** argv) { return run_named(argc, argv, kPrograms); }
