// What the token may do. Only for what is drawn: the server admits every request by itself.

const ROLES = ['viewer', 'operator', 'administrator'];

let access = null;

/** `{name, role, tubes, expires, hides_payloads, badge}` of the token, or null. */
export function setAccess(value) {
  access = value;
}

export function getAccess() {
  return access;
}

function covers(pattern, tube) {
  if (pattern === '*') return true;
  return pattern.endsWith('*') ? tube !== undefined && tube.startsWith(pattern.slice(0, -1)) : pattern === tube;
}

/** Whether the token has at least this role, for the tube or, without one, for the whole server. */
export function may(role, tube) {
  if (!access || ROLES.indexOf(access.role) < ROLES.indexOf(role)) return false;
  return access.tubes.some((pattern) => covers(pattern, tube));
}

/** Whether payloads and errors are hidden until a person asks for one (the setting http.hide_payloads). */
export function hidesPayloads() {
  return access?.hides_payloads === true;
}

/** `{text, color}` of the setting http.badge, or null. */
export function badge() {
  return access?.badge ?? null;
}
