// SPDX-License-Identifier: Apache-2.0
// Ranks, contexts and memory.
#include "c/handles.hpp"

#include <cstdio>
#include <span>

namespace {

using namespace sluice::c;

sluice::Options run_options(const sluice_options* given) {
  const sluice_options read = options_of<sluice_options>(given, SLUICE_OPTIONS);
  return {timeout_of(read.timeout), timeout_of(read.connect_timeout), text_of(read.backends)};
}

sluice::Body body_of(sluice_body body, void* argument) {
  if (body == nullptr) refuse(sluice::Code::bad_argument, "the body is NULL");
  return [body, argument](sluice::Context& context) {
    forget_last_error();
    sluice_context handle{context, true};
    throw_unless_zero(body(&handle, argument), "the body");
  };
}

/// The exit code that `call` returns; 2 if its arguments are bad.
template <class Call>
int exit_code_of(const Call& call) noexcept {
  int exit_code = 2;
  if (guarded([&] { exit_code = call(); }) == SLUICE_OK) return exit_code;
  for (const char* part : {"sluice: ", sluice_last_error(), "\n"}) std::fputs(part, stderr);
  return 2;
}

}  // namespace

namespace sluice::c {

Slice slice_of(const sluice_memory* memory, std::size_t offset, std::size_t bytes) {
  if (memory == nullptr && bytes == 0) return {};
  return at(memory, "memory").region.slice(offset, bytes);
}

}  // namespace sluice::c

int sluice_run(int argc, char** argv, sluice_body body, void* argument, const sluice_options* options) {
  return exit_code_of([&] { return sluice::run(argc, argv, body_of(body, argument), run_options(options)); });
}

int sluice_run_threads(int ranks, sluice_body body, void* argument, const sluice_options* options) {
  return exit_code_of([&] { return sluice::run_threads(ranks, body_of(body, argument), run_options(options)); });
}

int sluice_context_rank(const sluice_context* context) { return context == nullptr ? -1 : context->context.rank(); }

int sluice_context_size(const sluice_context* context) { return context == nullptr ? 0 : context->context.size(); }

int sluice_context_node_rank(const sluice_context* context) {
  return context == nullptr ? -1 : context->context.node_rank();
}

int sluice_context_node_size(const sluice_context* context) {
  return context == nullptr ? 0 : context->context.node_size();
}

sluice_code sluice_context_sub(sluice_context* context, const int* ranks, size_t count, sluice_context** sub) {
  return create(sub, [&] {
    if (ranks == nullptr) refuse(sluice::Code::bad_argument, "the list of ranks is NULL");
    return sluice_context{at(context).sub(std::span(ranks, count))};
  });
}

sluice_code sluice_context_free(sluice_context** context) {
  if (context == nullptr || *context == nullptr || !(*context)->of_body) return destroy(context);
  return guarded([] { refuse(sluice::Code::misuse, "the context of a body is not the body's to free"); });
}

sluice_code sluice_context_synchronize(sluice_context* context, sluice_stream stream, sluice_timeout timeout) {
  return guarded([&] { at(context).synchronize(stream_of(stream), limit_of(timeout)); });
}

sluice_code sluice_context_check(sluice_context* context) {
  return guarded([&] { at(context).check(); });
}

sluice_code sluice_context_abort(sluice_context* context, const char* why) {
  return guarded([&] { at(context).abort(text_of(why)); });
}

sluice_code sluice_context_allocate(sluice_context* context, size_t bytes, int space, int device,
                                    sluice_memory** memory) {
  static_assert(static_cast<int>(sluice::Space::pinned) == SLUICE_SPACE_PINNED);
  static_assert(static_cast<int>(sluice::Space::device) == SLUICE_SPACE_DEVICE);
  return create(memory, [&] {
    return sluice_memory{at(context).allocate(bytes, value_of(space, sluice::Space::device, "space"), device)};
  });
}

sluice_code sluice_context_region(sluice_context* context, void* address, size_t bytes, sluice_memory** memory) {
  return create(memory, [&] { return sluice_memory{at(context).region(address, bytes)}; });
}

void* sluice_memory_data(const sluice_memory* memory) { return memory == nullptr ? nullptr : memory->region.data(); }

size_t sluice_memory_bytes(const sluice_memory* memory) { return memory == nullptr ? 0 : memory->region.bytes(); }

sluice_code sluice_memory_free(sluice_memory** memory) { return destroy(memory); }
