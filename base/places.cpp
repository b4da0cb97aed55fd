// SPDX-License-Identifier: Apache-2.0
#include "base/places.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

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

/// What `command` writes; empty: it could not be started, or failed.
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

/// "halo.cpp:41"; empty: addr2line is not there, or knows no line.
std::string line_of(const InFile& where) {
  const std::string address = hexadecimal_address(where.address);
  std::string line = output_of({"addr2line", "-s", "-e", where.file.c_str(), address.c_str(), nullptr});
  line = line.substr(0, line.find_first_of(" \n"));  // " (discriminator 2)" may follow
  const bool known = !line.empty() && line.front() != '?' && !line.ends_with(":?") && !line.ends_with(":0");
  return known ? line : std::string();
}

std::string new_text(std::uintptr_t address) {
  const InFile where = in_file(address - 1);  // inside the call: what is returned to may be of the next line
  if (where.file.empty()) return hexadecimal_address(address);
  if (std::string line = line_of(where); !line.empty()) return line;
  return where.file.substr(where.file.rfind('/') + 1) + "+" + hexadecimal_address(where.address);
}

}  // namespace

std::string place_text(Place place) {
  static OnePerProcess<Guarded<std::map<Place, std::string>>> known;
  if (place == nullptr) return "an unknown place";
  const std::lock_guard lock(known->mutex);
  auto& text = known->value[place];
  if (text.empty()) text = new_text(reinterpret_cast<std::uintptr_t>(place));
  return text;
}

}  // namespace sluice::base
