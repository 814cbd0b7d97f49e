/**
 * Patterns for the enforced values of `format`; each matches the whole string. They allow less than
 * the standards where a standard allows unusual values (leap seconds, quoted local parts).
 */
const YEAR = "[0-9]{4}";
const LEAP_YEAR = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)";
const DATE = `(?:${YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|` +
  "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|" +
  `${LEAP_YEAR}-02-29)`;
const TIME = "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?" +
  "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
const BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
const IPV4 = `${BYTE}(?:\\.${BYTE}){3}`;
const LABEL = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,18}[a-zA-Z0-9])?";
const HOST = `${LABEL}(?:\\.${LABEL}){0,2}`;
const ATOM = "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]{1,16}";
const HEX = "[0-9a-fA-F]";
const GROUP = `${HEX}{1,4}`;
const IPV6 = "(?:" + [
  `(?:${GROUP}:){7}${GROUP}`,
  // k groups before "::" and at most 7 - k after it
  ...Array.from({ length: 8 }, (_, k) => {
    const before = k === 0 ? "" : `${GROUP}(?::${GROUP}){${k - 1}}`;
    const most = 7 - k;
    const after = most <= 0 ? "" : `(?:${GROUP}(?::${GROUP}){0,${most - 1}})?`;
    return `${before}::${after}`;
  }),
].join("|") + ")";
const PCHAR = "(?:[a-zA-Z0-9._~!$&'()*+,;=:@-]|%[0-9a-fA-F]{2})";
const URI = `[a-z][a-z0-9+.-]{0,15}://${HOST}(?::[1-9][0-9]{0,4})?(?:/${PCHAR}*)*` +
  `(?:\\?(?:${PCHAR}|[/?])*)?(?:#(?:${PCHAR}|[/?])*)?`;
const DURATION = "P(?:[0-9]{1,9}W|(?:[0-9]{1,9}Y(?:[0-9]{1,9}M(?:[0-9]{1,9}D)?)?|" +
  "[0-9]{1,9}M(?:[0-9]{1,9}D)?|[0-9]{1,9}D)(?:T@)?|T@)";
const CLOCK = "(?:[0-9]{1,9}H(?:[0-9]{1,9}M(?:[0-9]{1,9}S)?)?|[0-9]{1,9}M(?:[0-9]{1,9}S)?|" +
  "[0-9]{1,9}S)";

/** Patterns by format. */
export const FORMATS: Readonly<Record<string, string>> = {
  "date": DATE,
  "time": TIME,
  "date-time": `${DATE}T${TIME}`,
  "duration": DURATION.replaceAll("@", CLOCK),
  "email": `${ATOM}(?:\\.${ATOM}){0,1}@${LABEL}(?:\\.${LABEL}){1,2}`,
  "hostname": HOST,
  "ipv4": IPV4,
  "ipv6": IPV6,
  "uri": URI,
  "uuid": `${HEX}{8}-${HEX}{4}-${HEX}{4}-${HEX}{4}-${HEX}{12}`,
  "json-pointer": "(?:/(?:[^~/]|~[01])*)*",
};
