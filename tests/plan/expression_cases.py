"""Expressions over a table with columns of all types; each must mean the same after it was read and printed."""

from __future__ import annotations

TABLE = """
SELECT * FROM VALUES
  (true, 1Y, 2S, 3, 4L, 1.5F, 2.5D, 10.50BD, 1.000000000000000001BD, 'abc', 'it''s', X'00FF10', DATE '2024-02-29',
   TIMESTAMP '2024-02-29 12:34:56.789012', TIMESTAMP_NTZ '2024-02-29 12:34:56.789012', INTERVAL '1-2' YEAR TO MONTH,
   INTERVAL '1 02:03:04.5' DAY TO SECOND, array(3, 1, NULL, 2), array('b', 'a'), map('k', 1, 'l', 2),
   named_struct('a', 1, 'b c', 'x', 'n', named_struct('x', 1.5D)), array(named_struct('k', 1, 'v', 'p')),
   '{"a": 1, "b": [1, 2]}', 'Ab'),
  (false, -128Y, -32768S, -2147483648, -9223372036854775807L, CAST('NaN' AS FLOAT), CAST('-Infinity' AS DOUBLE), -0.01BD,
   -2.500000000000000000BD, '', 'back\\\\slash "q" %_', X'', DATE '1582-10-15',
   TIMESTAMP '1899-12-31 23:59:59.999999', TIMESTAMP_NTZ '0001-01-01 00:00:00', INTERVAL '-0-11' YEAR TO MONTH,
   INTERVAL '-3 00:00:00.000001' DAY TO SECOND, array(), array('c', NULL), map(),
   named_struct('a', NULL, 'b c', NULL, 'n', NULL), array(), 'not json', 'aB'),
  (true, 127Y, 7S, 2147483647, 9L, 0.0F, -1.5D, 99999.99BD, 0BD, '42', 'żółć 😀 ${x} {0}', X'61', DATE '2023-12-31',
   TIMESTAMP '2023-12-31 00:00:00', TIMESTAMP_NTZ '2023-06-15 08:00:00', INTERVAL '0-0' YEAR TO MONTH,
   INTERVAL '0 00:00:00' DAY TO SECOND, array(1, 2, 3), array('x', 'y', 'z'), map('a', NULL),
   named_struct('a', 2, 'b c', 'y', 'n', named_struct('x', NULL)), array(named_struct('k', 2, 'v', NULL), NULL),
   '{"a": "s"}', 'zz'),
  (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
   NULL, NULL, NULL)
AS t(b, i1, i2, i4, i8, f4, f8, d, d38, s, s2, bin, dt, ts, tn, ym, ds, ai, strs, m, st, ast, j, cs0)
"""

COLUMNS = "*, CAST(cs0 AS STRING COLLATE UNICODE_CI) AS cs, try_parse_json(j) AS v"
"""Columns that VALUES cannot write."""


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line for line in text.strip().splitlines() if line)


LITERALS = _lines(
    r"""
true
false
NULL
CAST(NULL AS INT)
CAST(NULL AS MAP<STRING, ARRAY<INT>>)
1Y
-1S
2147483647
5L
-9223372036854775808
-128Y
1.5
-0.00001
12345678901234567890.123456789
1.5BD
CAST(1.5 AS DECIMAL(20, 5))
0.0
1e3
1.5F
2.5D
-1.0E-300D
CAST('NaN' AS DOUBLE)
CAST('-Infinity' AS FLOAT)
''
'a'
'it''s'
'back\\slash'
'new\nline\ttab'
'żółć 😀'
'${env:x}'
'{0} {braces}'
r'raw\d'
'\u0001'
'a' 'b'
X'00ff'
X''
DATE '2024-02-29'
DATE '0001-01-01'
DATE '9999-12-31'
DATE '-0044-03-15'
TIMESTAMP '2024-02-29 12:34:56.789'
TIMESTAMP '2024-02-29 12:34:56+05:30'
TIMESTAMP '0001-01-01 00:00:00'
TIMESTAMP '+10000-01-01 00:00:00'
TIMESTAMP_NTZ '2024-02-29 12:34:56.789'
TIMESTAMP_NTZ '-0044-03-15 00:00:00'
INTERVAL '1-2' YEAR TO MONTH
INTERVAL '-3' YEAR
INTERVAL '5' MONTH
INTERVAL '1 02:03:04.000005' DAY TO SECOND
INTERVAL '-1' DAY
INTERVAL '5' HOUR
INTERVAL '90' SECOND
INTERVAL '10:30' HOUR TO MINUTE
INTERVAL 3 DAYS 4 HOURS
make_interval(1, 2, 3, 4, 5, 6, 7.5)
array()
array(1, NULL)
map()
map('a', 1)
named_struct('a', 1, 'b c', 'x')
'a' COLLATE UNICODE_CI
array(DATE '2024-01-01')
struct(1, 'x')
"""
)

ARITHMETIC = _lines(
    r"""
i4 + 1
i1 + i2
i8 - 1L
d * 2
d * d38
d / 3
i4 / 2
i4 % 3
i8 div 2
pmod(i4, 7)
-d
+i2
-i2
d - i4
f8 * 2
f4 + f8
i4 & 3
i4 | 8
i4 ^ 5
~i4
shiftleft(i4, 2)
i4 >> 1
i4 >>> 1
i2 << 1
abs(d)
ceil(d)
ceil(f8, 1)
floor(d)
floor(d, 1)
round(d, 1)
bround(f8, 0)
sqrt(abs(d))
power(2, i1)
greatest(i1, i2, i4)
least(d, f8)
sign(d)
hex(i8)
conv('ff', 16, 10)
width_bucket(f8, 0, 10, 5)
try_add(i4, 1)
try_subtract(i4, 1)
try_multiply(i4, 2)
try_divide(i4, 0)
try_mod(i4, 0)
factorial(i2 % 5 + 5)
d38 + 1
i4 = i8
i4 <=> NULL
d > 1
d >= i4
s < 'b'
s <> 'abc'
b AND i4 > 1
b OR i4 IS NULL
NOT b
i4 BETWEEN 1 AND 3
i4 NOT BETWEEN i1 AND i2
s BETWEEN 'a' AND 'b'
isnan(f4)
nanvl(f4, 0)
i4 IN (1, 2, 3)
i4 NOT IN (1, NULL)
d IN (10.5, 1)
s IN ('abc', s2)
(i4, s) IN ((3, 'abc'))
b IS TRUE
b IS NOT FALSE
b IS UNKNOWN
i4 IS DISTINCT FROM i8
f8 = CAST('NaN' AS DOUBLE)
1 = 1
bit_count(i4)
i8 * i1 + d / 2 - f8
"""
)

CONDITIONALS = _lines(
    r"""
CASE WHEN i4 > 1 THEN 'x' WHEN b THEN 'y' ELSE 'z' END
CASE WHEN b THEN 1 END
CASE i4 WHEN 3 THEN 'three' ELSE s END
if(b, i4, i8)
if(b, 'a', NULL)
coalesce(s, s2, 'none')
nvl(i4, i8)
nvl2(i4, 1, 2)
nullif(i4, 3)
ifnull(d, 0)
decode(i4, 3, 'three', 'other')
nullifzero(i4)
zeroifnull(i4)
nullif(nullif(s, ''), 'abc')
equal_null(i4, i8)
i4 + CASE WHEN b THEN 1 ELSE 2 END
assert_true(1 = 1)
"""
)

STRINGS = _lines(
    r"""
s LIKE 'a%'
s2 LIKE '%!_%' ESCAPE '!'
s2 LIKE '%\\%%'
s NOT LIKE '_b_'
s ILIKE 'A%'
s RLIKE '^a.c$'
s LIKE ANY ('a%', 'b%')
s LIKE ALL ('a%', '%c')
s NOT LIKE ANY ('a%', 'b%')
s NOT LIKE ALL ('a%')
regexp_replace(s, '(\\w)', '$1-')
regexp_extract(s, '([a-z]+)', 1)
split(s2, ' ')
s || s2
concat(s, 1, d)
concat_ws('-', s, strs)
upper(s)
lower(s2)
initcap(s2)
length(s2)
char_length(s)
substring(s, 2)
left(s, 2)
substring(s FROM 1 FOR 2)
right(s, 1)
trim(s)
trim(BOTH 'a' FROM s)
trim(LEADING 'a' FROM s)
ltrim('a', s)
trim(TRAILING 'c' FROM s)
rtrim(s)
btrim(s, 'ac')
lpad(s, 5, '*')
rpad(s, 5)
position('b' IN s)
instr(s, 'b')
locate('b', s, 1)
replace(s, 'b', 'X')
translate(s, 'ab', 'xy')
overlay(s PLACING 'Z' FROM 2)
repeat(s, 2)
reverse(s)
reverse(ai)
ascii(s)
chr(65)
format_string('%s-%d', s, i4)
format_number(d, 1)
md5(s)
sha2(s, 256)
crc32(s)
hash(s, i4)
xxhash64(s)
base64(bin)
unbase64('YQ==')
encode(s, 'UTF-8')
decode(bin, 'UTF-8')
hex(bin)
unhex('61')
soundex(s)
levenshtein(s, s2)
contains(s, 'b')
startswith(s, 'a')
endswith(s, 'c')
elt(1, s, s2)
find_in_set('a', 'b,a')
split_part(s2, ' ', 1)
to_number('12.3', '99.9')
try_to_number(s, '99')
to_char(d, '99999.99')
url_encode(s2)
url_decode('a%20b')
parse_url('http://a/b?c=d', 'QUERY', 'c')
mask(s)
sentences(s)
to_binary(s, 'utf-8')
collation(cs)
cs = 'AB'
s COLLATE UNICODE
concat(cs, 'x')
upper(cs)
contains(cs, 'A')
is_valid_utf8(s)
luhn_check(s)
quote(s2)
regexp_count(s, 'b')
regexp_substr(s, 'b')
regexp_instr(s, 'b')
str_to_map('a:1,b:2')
json_array_length('[1,2]')
octet_length(s2)
bit_length(s2)
printf('%05d', i4)
char(66)
substr(s, -2)
substring_index('a.b.c', '.', 2)
"""
)

CASTS = _lines(
    r"""
CAST(i4 AS STRING)
CAST(d AS DOUBLE)
CAST(d38 AS DECIMAL(10, 2))
CAST(f8 AS STRING)
TRY_CAST(s AS INT)
TRY_CAST(s AS DATE)
CAST(dt AS TIMESTAMP)
CAST(ts AS DATE)
CAST(ts AS STRING)
CAST(tn AS STRING)
CAST(ts AS LONG)
CAST(bin AS STRING)
CAST(s AS BINARY)
CAST(b AS INT)
CAST(ai AS ARRAY<BIGINT>)
CAST(m AS MAP<STRING, DOUBLE>)
CAST(st AS STRUCT<`x y`: BIGINT, z: STRING, w: STRUCT<q: DOUBLE>>)
CAST(ym AS STRING)
CAST(ds AS STRING)
TRY_CAST(f8 AS INT)
CAST(i4 AS DECIMAL(38, 10))
TRY_CAST(d AS DECIMAL(3, 2))
s::string
CAST(strs AS ARRAY<STRING COLLATE UNICODE>)
CAST(dt AS TIMESTAMP_NTZ)
CAST(ts AS TIMESTAMP_NTZ)
CAST(v AS STRING)
TRY_CAST(v:a AS INT)
string(i4)
double(d)
CAST(INTERVAL '90' MINUTE AS INTERVAL DAY TO SECOND)
CAST(named_struct('{x}', 1) AS STRUCT<`{y}`: STRING>)
"""
)

TIMES = _lines(
    r"""
dt + 1
dt - 1
dt - DATE '2024-01-01'
ts - ts
ts - INTERVAL 1 HOUR
ts + INTERVAL '1' MONTH
dt + ym
dt + ds
ts + ym
ts + ds
tn + ds
tn - tn
ym * 2
ds / 2
ym + ym
ds - ds
-ds
date_add(dt, 5)
date_sub(dt, 5)
datediff(dt, DATE '2024-01-01')
add_months(dt, 1)
months_between(ts, dt)
last_day(dt)
next_day(dt, 'MON')
trunc(dt, 'MM')
date_trunc('HOUR', ts)
date_trunc('DAY', tn)
year(dt)
quarter(dt)
month(ts)
day(dt)
dayofweek(dt)
weekday(dt)
dayofyear(dt)
weekofyear(dt)
hour(ts)
minute(ts)
second(ts)
extract(YEAR FROM dt)
extract(SECOND FROM ts)
extract(DAY FROM ds)
extract(MONTH FROM ym)
date_part('WEEK', dt)
extract(DOW FROM dt)
extract(YEAROFWEEK FROM dt)
date_format(ts, 'yyyy-MM-dd HH:mm')
to_date('2024-01-02')
to_date('02/01/2024', 'dd/MM/yyyy')
to_timestamp('2024-01-02 03:04:05')
to_timestamp_ntz('2024-01-02')
try_to_timestamp(s)
unix_timestamp(ts)
from_unixtime(i2)
unix_micros(ts)
timestamp_seconds(i4)
timestamp_millis(i8 % 1000)
make_date(2024, 2, 29)
make_timestamp(2024, 1, 2, 3, 4, 5.6)
make_dt_interval(1, 2, 3, 4.5)
make_ym_interval(1, 2)
to_utc_timestamp(ts, 'Asia/Tokyo')
from_utc_timestamp(ts, 'CET')
convert_timezone('UTC', 'CET', tn)
timestampadd(DAY, 3, ts)
timestampdiff(HOUR, ts, TIMESTAMP '2025-01-01 00:00:00')
dayname(dt)
monthname(dt)
try_to_date(s, 'yyyy')
date_from_unix_date(i2)
unix_date(dt)
current_timezone()
date(ts)
ts > DATE '2020-01-01'
dt = '2024-02-29'
ts BETWEEN '2000-01-01' AND '2030-01-01'
try_add(dt, INTERVAL 1 DAY)
try_add(ts, INTERVAL '1' YEAR)
try_subtract(ts, INTERVAL 1 HOUR)
try_subtract(dt, dt)
try_multiply(ym, 2)
try_divide(ds, 0)
"""
)

NESTED = _lines(
    r"""
ai[0]
get(ai, 9)
element_at(strs, 1)
try_element_at(ai, 9)
try_element_at(m, 'zz')
m['k']
st.a
st.`b c`
st.n.x
ast.k
get(ast, 0).v
size(ai)
cardinality(m)
array_contains(ai, 1)
array_position(ai, 2)
array_distinct(ai)
array_union(ai, array(9))
array_except(ai, array(1))
array_intersect(ai, array(1, 2))
sort_array(ai)
sort_array(strs, false)
array_sort(ai)
array_sort(ai, (l, r) -> CASE WHEN l < r THEN 1 WHEN l > r THEN -1 ELSE 0 END)
array_max(ai)
array_min(ai)
array_join(strs, ',')
array_join(strs, ',', '?')
array_repeat(s, 2)
array_remove(ai, 1)
array_append(ai, 5)
array_prepend(ai, 5)
array_insert(ai, 1, 5)
array_compact(ai)
arrays_overlap(ai, array(1))
arrays_zip(ai, strs)
slice(ai, 1, 2)
flatten(array(ai, ai))
sequence(1, 3)
sequence(DATE '2024-01-01', DATE '2024-03-01', INTERVAL 1 MONTH)
transform(ai, x -> x + 1)
transform(ai, (x, i) -> x * i)
filter(ai, x -> x > 1)
exists(ai, x -> x IS NULL)
forall(ai, x -> x > 0)
aggregate(ai, 0, (acc, x) -> acc + coalesce(x, 0))
reduce(ai, 0, (acc, x) -> acc + 1, acc -> acc * 10)
zip_with(ai, strs, (x, y) -> concat(x, y))
transform(array(ai, ai), x -> transform(x, y -> y + size(x)))
transform(strs, c -> concat(c, s))
map_keys(m)
map_values(m)
map_entries(m)
map_from_arrays(array(1, 2), array('a', 'b'))
map_from_entries(array(struct(1, 'a')))
map_filter(m, (k, v) -> v > 1)
transform_keys(m, (k, v) -> upper(k))
transform_values(m, (k, v) -> v + 1)
map_zip_with(m, m, (k, a, b) -> a + b)
map_concat(m, map('z', 9))
map_contains_key(m, 'k')
map('x', i4)
struct(i4, s)
struct(i4 + 1, s AS t)
named_struct('a', i4, 'B', s)
struct(st.a, st.n)
array(i4, i8)
array(st)
to_json(st)
to_json(m)
to_json(struct(ts), map('timestampFormat', 'yyyy'))
from_json(j, 'a INT, b ARRAY<INT>')
from_json(j, 'STRUCT<`a`: STRING>', map('mode', 'PERMISSIVE'))
from_json('[1]', 'ARRAY<INT>')
get_json_object(j, '$.a')
schema_of_json('{"a": 1}')
from_csv('1,x', 'a INT, b STRING')
to_csv(struct(i4, s))
to_csv(struct(i4, s), map('sep', ';'))
v:a
variant_get(v, '$.a', 'STRING')
try_variant_get(v, '$.a', 'INT')
parse_json('{"a": 1}')
try_parse_json(j)
is_variant_null(v)
to_variant_object(st)
schema_of_variant(v)
st = named_struct('a', 1, 'b c', 'x', 'n', named_struct('x', 1.5D))
ai = array(1, 2, 3)
hash(st, ai)
cardinality(ai)
array_size(ai)
from_xml('<p><a>1</a></p>', 'a INT')
to_xml(named_struct('a', 1))
xpath_int('<a><b>1</b></a>', 'a/b')
typeof(st)
bitmap_bit_position(i4)
bin(i8)
rint(f8)
equal_null(ai, NULL)
cbrt(f8)
"""
)

AGGREGATES = _lines(
    r"""
count(*)
count(i4)
count(DISTINCT i4)
count(DISTINCT i4, s)
count(*) FILTER (WHERE b)
sum(i4)
sum(d)
sum(DISTINCT i2)
sum(i8) FILTER (WHERE i4 > 0)
avg(d)
avg(i4)
try_sum(i8)
try_avg(d)
min(s)
max(dt)
min(st)
max(ai)
bool_or(b)
every(b)
count_if(i4 > 1)
stddev(f8)
var_pop(d)
corr(d, i4)
covar_samp(d, i4)
skewness(d)
kurtosis(d)
bit_and(i4)
bit_xor(i4)
percentile(d, 0.5)
percentile(d, array(0.1, 0.9))
median(d)
percentile_cont(0.25) WITHIN GROUP (ORDER BY d)
percentile_cont(0.25) WITHIN GROUP (ORDER BY d DESC)
percentile_disc(0.25) WITHIN GROUP (ORDER BY d DESC)
approx_count_distinct(s)
approx_count_distinct(s, 0.01)
regr_slope(d, i4)
regr_count(d, i4)
sum(d) / count(*)
max(i4) - min(i4) + 1
count_min_sketch(i4, 0.5D, 0.5D, 1)
bitmap_construct_agg(bitmap_bit_position(i4 % 100))
sum(ym)
avg(ds)
max(b)
sum(f8 * 0)
schema_of_variant_agg(v)
listagg(s, ',') WITHIN GROUP (ORDER BY s)
mode() WITHIN GROUP (ORDER BY s)
mode() WITHIN GROUP (ORDER BY s DESC)
sum(CASE WHEN b THEN d ELSE 0 END)
max(struct(i4, s)).s
percentile_approx(i4, 0.5)
std(i4)
"""
)
