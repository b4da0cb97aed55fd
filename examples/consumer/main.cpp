// SPDX-License-Identifier: Apache-2.0
// Each rank sends its number to its right neighbour, on a stream, and checks the number from its left neighbour.
#include <sluice/sluice.hpp>

#include <cstdio>
#include <stdexcept>
#include <string>

int main(int argc, char** argv) {
  return sluice::run(argc, argv, [](sluice::Context& ctx) {
    const int right = (ctx.rank() + 1) % ctx.size();
    const int left = (ctx.rank() + ctx.size() - 1) % ctx.size();
    sluice::HostStream host;
    const sluice::Stream stream = sluice::Stream::host(host);
    sluice::Memory memory = ctx.allocate(2 * sizeof(int));
    sluice::Sender out = ctx.sender(right, 0, memory.slice(0, sizeof(int)));
    sluice::Receiver in = ctx.receiver(left, 0, memory.slice(sizeof(int), sizeof(int)));

    int got = -1;
    const sluice::Slice source = out.acquire(stream);
    host.run([source, &ctx] { source.as<int>()[0] = ctx.rank(); });
    out.put(stream);
    const sluice::Slice target = in.wait(stream);
    host.run([target, &got] { got = target.as<int>()[0]; });
    in.release(stream);
    ctx.synchronize(stream);

    if (got != left) throw std::runtime_error("got " + std::to_string(got) + " instead of " + std::to_string(left));
    std::printf("rank %d of %d: got %d from the left\n", ctx.rank(), ctx.size(), got);
    std::fflush(stdout);  // a job that is killed has its lines, in a file too
  });
}
