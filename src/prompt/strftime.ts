// strftime for chat templates, in UTC and English, on a date that the caller gives: templates must
// render to the same bytes on every machine.

const MONTHS = [
  'January',
  'February',
  'March',
  'April',
  'May',
  'June',
  'July',
  'August',
  'September',
  'October',
  'November',
  'December',
];
const DAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];
const DAY_MS = 86_400_000;

const padded = (value: number, width = 2) => String(value).padStart(width, '0');
const hour12 = (date: Date) => date.getUTCHours() % 12 || 12;
const dayOfYear = (date: Date) =>
  Math.floor((date.getTime() - Date.UTC(date.getUTCFullYear(), 0, 1)) / DAY_MS) + 1;

const FORMATS: Readonly<Record<string, (date: Date) => string>> = {
  '%Y': (date) => String(date.getUTCFullYear()),
  '%y': (date) => padded(date.getUTCFullYear() % 100),
  '%m': (date) => padded(date.getUTCMonth() + 1),
  '%-m': (date) => String(date.getUTCMonth() + 1),
  '%B': (date) => MONTHS[date.getUTCMonth()] ?? '',
  '%b': (date) => (MONTHS[date.getUTCMonth()] ?? '').slice(0, 3),
  '%d': (date) => padded(date.getUTCDate()),
  '%-d': (date) => String(date.getUTCDate()),
  '%e': (date) => String(date.getUTCDate()).padStart(2),
  '%A': (date) => DAYS[date.getUTCDay()] ?? '',
  '%a': (date) => (DAYS[date.getUTCDay()] ?? '').slice(0, 3),
  '%j': (date) => padded(dayOfYear(date), 3),
  '%H': (date) => padded(date.getUTCHours()),
  '%I': (date) => padded(hour12(date)),
  '%p': (date) => (date.getUTCHours() < 12 ? 'AM' : 'PM'),
  '%M': (date) => padded(date.getUTCMinutes()),
  '%S': (date) => padded(date.getUTCSeconds()),
  '%F': (date) => date.toISOString().slice(0, 10),
  '%T': (date) => date.toISOString().slice(11, 19),
  '%Z': () => 'UTC',
  '%z': () => '+0000',
  '%%': () => '%',
};

/** Directives that are not known stay as they are. */
export function strftime(format: string, date: Date): string {
  return format.replace(/%-?[A-Za-z%]/g, (directive) => FORMATS[directive]?.(date) ?? directive);
}
