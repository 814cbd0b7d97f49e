/**
 * CUDA's compiler: finding it, asking what it is.
 */
import { join } from "@std/path";
import { type Compiler, runProcess } from "./compiler.ts";

/** Where `findNvcc` looks. */
interface FindNvccOptions {
  /** The variables CUDA_HOME and CUDA_PATH, the folders of toolkits. */
  readonly toolkits?: readonly (string | undefined)[];
  /** The environment the compiler runs in; the default is this process's. */
  readonly environment?: Readonly<Record<string, string>> | undefined;
}

/** What to do about a missing compiler. */
export const howToInstallNvcc =
  "no nvcc found (CUDA_HOME, CUDA_PATH, PATH); it comes with NVIDIA's CUDA toolkit, 12.0 or newer";

async function versionOf(
  program: string,
  environment: Readonly<Record<string, string>> | undefined,
): Promise<string | undefined> {
  try {
    const { ok, output } = await runProcess([program, "--version"], "/", environment);
    return ok ? output.match(/release [\d.]+, V[\d.]+/)?.[0] : undefined;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
}

/** The first nvcc of the toolkits named by the environment, and of PATH, that runs. */
export async function findNvcc(options: FindNvccOptions = {}): Promise<Compiler | undefined> {
  const toolkits = options.toolkits ?? [Deno.env.get("CUDA_HOME"), Deno.env.get("CUDA_PATH")];
  const programs = toolkits.filter((folder) => folder !== undefined && folder !== "")
    .map((folder) => join(folder ?? "", "bin", "nvcc"));
  for (const program of [...programs, "nvcc"]) {
    const version = await versionOf(program, options.environment);
    if (version !== undefined) return { command: [program], identity: `${program} ${version}` };
  }
  return undefined;
}
