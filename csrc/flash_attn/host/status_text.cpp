#include "flash_attn.h"

const char *flash_attn_status_text(flash_attn_status status) {
  switch (status) {
    case FLASH_ATTN_OK:
      return "no error";
    case FLASH_ATTN_BAD_VERSION:
      return "the parameters' version, or the function's number, is not of this library";
    case FLASH_ATTN_BAD_DTYPE:
      return "dtype is not F16 or BF16";
    case FLASH_ATTN_BAD_HEAD_DIM:
      return "head_dim is not 64, 96 (not with E4M3), 128, 192 or 256";
    case FLASH_ATTN_BAD_HEADS:
      return "n_heads is not a positive multiple of n_kv_heads";
    case FLASH_ATTN_BAD_LENGTH:
      return "batch, a length or a total is negative or too large (2^29 rows; 16 queries to "
             "decode)";
    case FLASH_ATTN_BAD_STRIDE:
      return "a stride is not positive, too large or no multiple of 16 bytes, or "
             "block_table_stride is less than the pages of seqlen_k keys";
    case FLASH_ATTN_MISALIGNED:
      return "a pointer is misaligned: rows, scales and the workspace need 16 bytes, a mask the "
             "size of its elements, all others 4";
    case FLASH_ATTN_NULL_POINTER:
      return "a pointer that this function needs is null";
    case FLASH_ATTN_BAD_SCALE:
      return "scale is not a positive number, or softcap is negative or no number";
    case FLASH_ATTN_BAD_PAGE_SIZE:
      return "page_size is not a power of two from 8 on";
    case FLASH_ATTN_BAD_SPLITS:
      return "n_splits is not in 0 to 128";
    case FLASH_ATTN_BAD_FLAGS:
      return "an unknown flag is set, or FLASH_ATTN_FORCE_SM80 with E4M3";
    case FLASH_ATTN_WORKSPACE_TOO_SMALL:
      return "the workspace is null or smaller than flash_attn_workspace_size says";
    case FLASH_ATTN_NO_DEVICE:
      return "no CUDA device, or a driver too old for this library";
    case FLASH_ATTN_UNSUPPORTED_DEVICE:
      return "the device is older than compute capability 8.0, or not of 9.0 for E4M3, or no code "
             "was built for it";
    case FLASH_ATTN_LAUNCH_FAILED:
      return "CUDA could not launch the kernel";
    case FLASH_ATTN_TENSOR_MAP_FAILED:
      return "the driver could not describe a tensor for TMA";
    case FLASH_ATTN_BAD_KV_DTYPE:
      return "kv_dtype is unknown, or Q8_0 without F16 queries or for another function than "
             "decode, or E4M3 for decode";
    case FLASH_ATTN_BAD_MASK:
      return "mask_type is unknown or not for E4M3, or a stride of the mask is negative or too "
             "large";
    default:
      return "unknown status";
  }
}
