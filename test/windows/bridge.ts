/**
 * Preloaded by the operations' tests (`windows_test.ts`): `Deno.dlopen` of the CPU library opens
 * the DLL in Wine instead, and every call goes through pipes to `driver.cpp`. The reference stays
 * the library of Linux.
 */
const program = Deno.env.get("FORGE_TEST_WINDOWS_PROGRAM")!;
const library = Deno.env.get("FORGE_TEST_WINDOWS_LIBRARY")!;

const encoder = new TextEncoder();
const NUMBER = 2n ** 64n - 1n;

/** A running driver. Calls wait for its answers. */
class Driver {
  readonly #requests: Deno.FsFile;
  readonly #answers: Deno.FsFile;

  constructor() {
    const folder = Deno.makeTempDirSync({ prefix: "forge-test-" });
    const [requests, answers] = [`${folder}/requests`, `${folder}/answers`] as const;
    new Deno.Command("mkfifo", { args: [requests, answers] }).outputSync();
    // Each end of a pipe waits for the other, in this order. Wine's server outlives its programs
    // and would keep this process's own streams open.
    new Deno.Command("sh", {
      args: ["-c", 'exec wine "$0" "$1" < "$2" > "$3"', program, library, requests, answers],
      stdin: "null",
      stdout: "null",
      stderr: "null",
    }).spawn().unref();
    this.#requests = Deno.openSync(requests, { write: true });
    this.#answers = Deno.openSync(answers, { read: true });
    Deno.removeSync(folder, { recursive: true });
  }

  call(name: string, args: readonly unknown[]): bigint {
    const buffers = args.filter(ArrayBuffer.isView)
      .map((view) => new Uint8Array(view.buffer as ArrayBuffer, view.byteOffset, view.byteLength));
    let next = 0;
    const encodedName = encoder.encode(name);
    this.#write(Uint32Array.of(encodedName.length));
    this.#write(encodedName);
    this.#write(Uint32Array.of(args.length));
    for (const argument of args) {
      if (ArrayBuffer.isView(argument)) {
        this.#write(BigUint64Array.of(BigInt(argument.byteLength)));
        this.#write(buffers[next++]!);
      } else {
        this.#write(BigUint64Array.of(NUMBER, BigInt.asUintN(64, BigInt(argument as number ?? 0))));
      }
    }
    const result = new DataView(this.#read(8).buffer).getBigUint64(0, true);
    for (const buffer of buffers) {
      if (this.#read(1)[0] === 1) buffer.set(this.#read(buffer.length));
    }
    return result;
  }

  #write(view: ArrayBufferView<ArrayBuffer>): void {
    const bytes = new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
    for (let at = 0; at < bytes.length;) at += this.#requests.writeSync(bytes.subarray(at));
  }

  #read(length: number): Uint8Array<ArrayBuffer> {
    const bytes = new Uint8Array(length);
    for (let at = 0; at < length;) {
      const count = this.#answers.readSync(bytes.subarray(at));
      if (count === null) throw new Error("the driver has ended");
      at += count;
    }
    return bytes;
  }
}

/** One driver serves all openings of a file of tests, as a process loads a library once. */
let driver: Driver | undefined;

const dlopen = Deno.dlopen;

function bridged(name: string, { result, nonblocking }: Deno.ForeignFunction) {
  return (...args: unknown[]) => {
    const value = driver!.call(name, args);
    const converted = result === "i32"
      ? Number(BigInt.asIntN(32, value))
      : result === "u32"
      ? Number(BigInt.asUintN(32, value))
      : value;
    return nonblocking ? Promise.resolve(converted) : converted;
  };
}

Deno.dlopen = ((path: string, symbols: Deno.ForeignLibraryInterface) => {
  if (!/libforge_cpu\.so$/.test(path)) return dlopen(path, symbols);
  driver ??= new Driver();
  const entries = Object.entries(symbols)
    .map(([name, symbol]) => [name, bridged(name, symbol as Deno.ForeignFunction)]);
  return { symbols: Object.fromEntries(entries), close() {} };
}) as typeof Deno.dlopen;
