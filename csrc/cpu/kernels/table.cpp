#include "../kernel_table.h"

#define FORGE_JOIN(a, b) a##b
#define FORGE_TABLE_OF(target) FORGE_JOIN(kernels_, target)
#define FORGE_QUOTE(text) #text
#define FORGE_NAME_OF(target) FORGE_QUOTE(target)

namespace forge::cpu {

const KernelTable& FORGE_TABLE_OF(FORGE_TARGET)() {
  static constexpr KernelTable table = {
      .name = FORGE_NAME_OF(FORGE_TARGET),
#define KERNEL(Result, kernel, parameters) .kernel = FORGE_TARGET::kernel,
#include "../kernel_list.h"
#undef KERNEL
  };
  return table;
}

}  // namespace forge::cpu
