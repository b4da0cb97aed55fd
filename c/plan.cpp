// SPDX-License-Identifier: Apache-2.0
// Plans.
#include "c/handles.hpp"

using namespace sluice::c;

sluice_code sluice_plan_create(sluice_context* context, sluice_plan** plan) {
  return create(plan, [&] { return sluice_plan{at(context).plan()}; });
}

sluice_code sluice_plan_add_sender(sluice_plan* plan, sluice_sender* sender) {
  return guarded([&] { at(plan).add(at(sender)); });
}

sluice_code sluice_plan_add_receiver(sluice_plan* plan, sluice_receiver* receiver) {
  return guarded([&] { at(plan).add(at(receiver)); });
}

sluice_code sluice_plan_commit(sluice_plan* plan, sluice_stream stream, sluice_timeout timeout) {
  return guarded([&] { at(plan).commit(stream_of(stream), timeout_of(timeout)); });
}

sluice_code sluice_plan_acquire(sluice_plan* plan, sluice_stream stream) {
  return guarded([&] { at(plan).acquire(stream_of(stream)); });
}

sluice_code sluice_plan_start(sluice_plan* plan, sluice_stream stream) {
  return guarded([&] { at(plan).start(stream_of(stream)); });
}

sluice_code sluice_plan_wait(sluice_plan* plan, sluice_stream stream) {
  return guarded([&] { at(plan).wait(stream_of(stream)); });
}

sluice_code sluice_plan_release(sluice_plan* plan, sluice_stream stream) {
  return guarded([&] { at(plan).release(stream_of(stream)); });
}

sluice_code sluice_plan_sender_slot(const sluice_plan* plan, const sluice_sender* sender, void** slot) {
  return guarded([&] { result(slot) = at(plan).slot(at(sender)).data(); });
}

sluice_code sluice_plan_receiver_slot(const sluice_plan* plan, const sluice_receiver* receiver, void** slot) {
  return guarded([&] { result(slot) = at(plan).slot(at(receiver)).data(); });
}

sluice_code sluice_plan_describe(const sluice_plan* plan, const char** text) {
  return guarded([&] { describe(text, at(plan).describe()); });
}

sluice_code sluice_plan_free(sluice_plan** plan) { return destroy(plan); }
