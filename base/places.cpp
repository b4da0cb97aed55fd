// SPDX-License-Identifier: Apache-2.0
#include "base/places.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unwind.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fd.hpp"
#include "base/fork.hpp"

namespace sluice::base {
namespace {

std::string hexadecimal_address(std::uintptr_t number) {
  std::array<char, 2 * sizeof number> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number, 16).ptr;
  return "0x" + std::string(digits.data(), end);
}

/// A file of the program, and an address as that file states it.
struct InFile {
  std::string file;
  std::uintptr_t address = 0;
};

/// The file may have another name than the one by which the program was started.
std::string path_of(const Dl_info& module) {
  std::array<char, PATH_MAX> path{};
  if (::realpath(module.dli_fname, path.data()) != nullptr) return path.data();
  const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size() - 1);
  return length > 0 ? std::string(path.data(), static_cast<std::size_t>(length)) : std::string(module.dli_fname);
}

InFile in_file(std::uintptr_t address) {
  Dl_info module{};
  if (::dladdr(reinterpret_cast<const void*>(address), &module) == 0 || module.dli_fname == nullptr)
    return {{}, address};
  const auto* const header = static_cast<const ElfW(Ehdr)*>(module.dli_fbase);
  // Programs that are linked for one place state addresses as they are in memory.
  const std::uintptr_t base = header->e_type == ET_EXEC ? 0 : reinterpret_cast<std::uintptr_t>(module.dli_fbase);
  return {path_of(module), address - base};
}

/// Returns the output of `command`, which is empty if it could not be started, or failed.
std::string output_of(std::array<const char*, 6> command) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return {};
  const Fd out(ends[0]);
  Fd in(ends[1]);
  posix_spawn_file_actions_t actions;
  if (posix_spawn_file_actions_init(&actions) != 0) return {};
  posix_spawn_file_actions_adddup2(&actions, in.get(), STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = -1;
  // None of the program's environment: what a profiler or a launcher preloads is not for addr2line.
  std::array<char*, 1> environment{nullptr};
  const int failed =
      ::posix_spawnp(&child, command[0], &actions, nullptr, const_cast<char**>(command.data()), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  in = Fd();
  if (failed != 0) return {};
  std::string text;
  std::array<char, 4096> piece{};
  for (;;) {
    const ssize_t read = ::read(out.get(), piece.data(), piece.size());
    if (read < 0 && errno == EINTR) continue;
    if (read <= 0) break;
    text.append(piece.data(), static_cast<std::size_t>(read));
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return text;
}

/// True for code that no user has written.
bool is_of_a_header(std::string_view path) noexcept {
  constexpr std::array kHeaders{"include/sluice/", "/include/c++/", "/Kokkos_", "/usr/include/", "/usr/lib/"};
  return std::ranges::any_of(kHeaders, [&](std::string_view part) { return path.find(part) != path.npos; });
}
bool is_of_the_system(std::string_view module) noexcept {
  return module.starts_with("/usr/lib") || module.starts_with("/lib");
}

std::string_view name_of(std::string_view path) noexcept { return path.substr(path.rfind('/') + 1); }

/// The lines of a call, the innermost of inlined functions first, that are known: "src/halo.cpp:41".
std::vector<std::string> lines_of(const InFile& where) {
  const std::string address = hexadecimal_address(where.address);
  const std::string text = output_of({"addr2line", "-i", "-e", where.file.c_str(), address.c_str(), nullptr});
  std::vector<std::string> lines;
  for (std::size_t begin = 0, end = 0; (end = text.find('\n', begin)) != text.npos; begin = end + 1) {
    std::string line = text.substr(begin, end - begin);
    line = line.substr(0, line.find(" ("));  // a discriminator may follow
    if (!line.starts_with('?') && !line.ends_with(":?") && !line.ends_with(":0")) lines.push_back(std::move(line));
  }
  return lines;
}

/// Empty: the call is by a header, or by a library of the system. `known` is set to its line if it was empty.
std::string text_of_call(const InFile& where, std::string& known) {
  if (where.file.empty() || is_of_the_system(where.file)) return {};
  for (const std::string& line : lines_of(where)) {
    if (!is_of_a_header(line)) return std::string(name_of(line));
    if (known.empty()) known = name_of(line);
  }
  return known.empty() ? std::string(name_of(where.file)) + "+" + hexadecimal_address(where.address) : std::string();
}

std::string new_text(const Place& place) {
  std::string known;
  InFile first;
  for (const void* const call : place.calls()) {
    if (call == nullptr) break;
    const InFile where = in_file(reinterpret_cast<std::uintptr_t>(call) - 1);  // what follows may be of the next line
    if (std::string text = text_of_call(where, known); !text.empty()) return text;
    if (first.address == 0) first = where;
  }
  if (!known.empty()) return known;
  return std::string(name_of(first.file)) + (first.file.empty() ? "" : "+") + hexadecimal_address(first.address);
}

/// State of a walk over the stack: the address it looks for, and the result.
struct Walk {
  const void* address;
  std::span<const void*> calls;
  std::size_t count = 0;
};

_Unwind_Reason_Code note_frame(_Unwind_Context* frame, void* argument) {
  Walk& walk = *static_cast<Walk*>(argument);
  const auto* const at = reinterpret_cast<const void*>(_Unwind_GetIP(frame));
  if (walk.count > 0 || at == walk.address) walk.calls[walk.count++] = at;
  return walk.count == walk.calls.size() ? _URC_END_OF_STACK : _URC_NO_REASON;
}

}  // namespace

Place::Place(const void* address) noexcept {
  Walk walk{address, calls_};
  ::_Unwind_Backtrace(note_frame, &walk);
  if (walk.count == 0) calls_[0] = address;
}

std::string place_text(const Place& place) {
  static OnePerProcess<Guarded<std::map<Place, std::string>>> known;
  if (place == Place()) return "an unknown place";
  const std::lock_guard lock(known->mutex);
  auto& text = known->value[place];
  if (text.empty()) text = new_text(place);
  return text;
}

}  // namespace sluice::base
