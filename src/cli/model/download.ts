import { formatBytes, formatClock, printable } from "../output/format.ts";

/** How long a download is watched before its speed is told, in milliseconds. */
const SETTLING = 1000;

/** Says how far the files of a download have come, how fast, and how long the one at hand will take. */
export class DownloadMeter {
  #file = "";
  #start = 0;
  /** What an earlier download had left of the file. */
  #bytesAtStart = 0;

  /**
   * The line of progress.
   *
   * @param bytes what is here of the file
   * @param total its size, where that is known
   * @param now the time, in milliseconds
   */
  line(
    file: string,
    bytes: number,
    total: number | undefined,
    now: number = performance.now(),
  ): string {
    if (file !== this.#file) {
      this.#file = file;
      this.#start = now;
      this.#bytesAtStart = bytes;
    }
    const extent = total === undefined || total === 0
      ? formatBytes(bytes)
      : `${Math.floor(bytes / total * 100)}% of ${formatBytes(total)}`;
    const parts = [`${printable(file)}: ${extent}`];
    const milliseconds = now - this.#start;
    const rate = (bytes - this.#bytesAtStart) / milliseconds * 1000;
    if (milliseconds >= SETTLING && rate > 0) {
      parts.push(`${formatBytes(Math.round(rate))}/s`);
      if (total !== undefined) parts.push(`${formatClock((total - bytes) / rate)} left`);
    }
    return parts.join(", ");
  }
}
