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

/**
 * Formats a date in local time as Python's `strftime` does in the C locale. A `-` after the `%`
 * leaves out the padding, as in glibc; a directive that is not known stays as it is.
 *
 * @see https://docs.python.org/3/library/datetime.html#format-codes
 */
export function strftime(date: Date, format: string): string {
  return format.replace(/%(-?)([a-zA-Z%])/g, (directive: string, dash: string, code: string) => {
    const text = directiveText(date, code);
    if (text === undefined) return directive;
    return dash === "" ? text : text.replace(/^[0 ]+(?=\d)/, "");
  });
}

function directiveText(date: Date, code: string): string | undefined {
  const hours = date.getHours();
  switch (code) {
    case "%":
      return "%";
    case "Y":
      return String(date.getFullYear());
    case "y":
      return pad(date.getFullYear() % 100);
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
      return String(date.getDate()).padStart(2, " ");
    case "j":
      return pad(dayOfYear(date), 3);
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
    case "p":
      return hours < 12 ? "AM" : "PM";
    case "M":
      return pad(date.getMinutes());
    case "S":
      return pad(date.getSeconds());
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
    case "c":
      return strftime(date, "%a %b %e %H:%M:%S %Y");
    default:
      return undefined;
  }
}

function pad(value: number, width = 2): string {
  return String(value).padStart(width, "0");
}

function dayOfYear(date: Date): number {
  const day = Date.UTC(date.getFullYear(), date.getMonth(), date.getDate());
  return (day - Date.UTC(date.getFullYear(), 0, 0)) / 86_400_000;
}
