const MONTHS = [
  "January",
  "February",
  "March",
  "April",
  "May",
  "June",
  "July",
  "August",
  "September",
  "October",
  "November",
  "December",
];
const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MS_PER_DAY = 86_400_000;

/**
 * Formats a date in local time as Python's `strftime` does for a date without a time zone, in the C
 * locale. Flags after the `%` are those of glibc: `-` for no padding, `_` for spaces, `0` for
 * zeros, `^` for capitals and `#` for the other case. An unknown directive stays as it is.
 *
 * @see https://docs.python.org/3/library/datetime.html#format-codes
 */
export function strftime(date: Date, format: string): string {
  const directives = /%([-_0^#]*)[EO]?([a-zA-Z%])/g;
  return format.replace(directives, (directive: string, flags: string, code: string) => {
    let text = directiveText(date, code);
    if (text === undefined) return directive;
    if (flags.includes("-")) text = text.replace(/^[0 ]+(?=\d)/, "");
    else if (flags.includes("_")) {
      text = text.replace(/^0+(?=\d)/, (zeros) => " ".repeat(zeros.length));
    } else if (flags.includes("0")) {
      text = text.replace(/^ +/, (spaces) => "0".repeat(spaces.length));
    }
    if (flags.includes("#")) return code === "p" ? text.toLowerCase() : text.toUpperCase();
    return flags.includes("^") ? text.toUpperCase() : text;
  });
}

function directiveText(date: Date, code: string): string | undefined {
  const hours = date.getHours();
  switch (code) {
    case "%":
      return "%";
    case "n":
      return "\n";
    case "t":
      return "\t";
    case "Y":
      return String(date.getFullYear());
    case "C":
      return pad(Math.floor(date.getFullYear() / 100));
    case "y":
      return pad(date.getFullYear() % 100);
    case "G":
      return String(isoWeek(date).year);
    case "g":
      return pad(isoWeek(date).year % 100);
    case "m":
      return pad(date.getMonth() + 1);
    case "B":
      return MONTHS[date.getMonth()];
    case "b":
    case "h":
      return MONTHS[date.getMonth()]?.slice(0, 3);
    case "d":
      return pad(date.getDate());
    case "e":
      return pad(date.getDate(), 2, " ");
    case "j":
      return pad(dayOfYear(date), 3);
    case "U":
      return pad(Math.floor((dayOfYear(date) + 6 - date.getDay()) / 7));
    case "W":
      return pad(Math.floor((dayOfYear(date) + 6 - mondayBased(date)) / 7));
    case "V":
      return pad(isoWeek(date).week);
    case "A":
      return DAYS[date.getDay()];
    case "a":
      return DAYS[date.getDay()]?.slice(0, 3);
    case "w":
      return String(date.getDay());
    case "u":
      return String(date.getDay() || 7);
    case "H":
      return pad(hours);
    case "I":
      return pad(hours % 12 || 12);
    case "k":
      return pad(hours, 2, " ");
    case "l":
      return pad(hours % 12 || 12, 2, " ");
    case "p":
      return hours < 12 ? "AM" : "PM";
    case "P":
      return hours < 12 ? "am" : "pm";
    case "M":
      return pad(date.getMinutes());
    case "S":
      return pad(date.getSeconds());
    case "f":
      return pad(date.getMilliseconds() * 1000, 6);
    case "s":
      return String(Math.floor(date.getTime() / 1000));
    case "z":
    case "Z":
      // In Python, the date of a template has no time zone.
      return "";
    case "F":
      return strftime(date, "%Y-%m-%d");
    case "D":
    case "x":
      return strftime(date, "%m/%d/%y");
    case "T":
    case "X":
      return strftime(date, "%H:%M:%S");
    case "R":
      return strftime(date, "%H:%M");
    case "r":
      return strftime(date, "%I:%M:%S %p");
    case "c":
      return strftime(date, "%a %b %e %H:%M:%S %Y");
    default:
      return undefined;
  }
}

function pad(value: number, width = 2, fill = "0"): string {
  return String(value).padStart(width, fill);
}

function dayOfYear(date: Date): number {
  const day = Date.UTC(date.getFullYear(), date.getMonth(), date.getDate());
  return (day - Date.UTC(date.getFullYear(), 0, 0)) / MS_PER_DAY;
}

/** Returns the day of the week, counted from Monday. */
function mondayBased(date: Date): number {
  return (date.getDay() + 6) % 7;
}

/** Returns the week by ISO 8601, which belongs to the year of its Thursday. */
function isoWeek(date: Date): { year: number; week: number } {
  const offset = date.getDate() - mondayBased(date) + 3;
  const thursday = new Date(date.getFullYear(), date.getMonth(), offset);
  return { year: thursday.getFullYear(), week: Math.ceil(dayOfYear(thursday) / 7) };
}
