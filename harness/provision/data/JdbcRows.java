import java.io.PrintStream;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.Statement;
import java.sql.Types;

/**
 * Print the rows of a query as JSON lines: {@code java -cp DRIVER JdbcRows.java URL QUERY USER}. The password is
 * in the environment variable EOS_JDBC_PASSWORD. Names of columns are in lower case. Numbers and booleans are
 * those of JSON, and all other values are texts.
 */
public class JdbcRows {
    public static void main(String[] arguments) throws Exception {
        String user = arguments[2].isEmpty() ? null : arguments[2];
        String password = System.getenv("EOS_JDBC_PASSWORD");
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        try (Connection connection = DriverManager.getConnection(arguments[0], user, password);
                Statement statement = connection.createStatement();
                ResultSet rows = statement.executeQuery(arguments[1])) {
            ResultSetMetaData columns = rows.getMetaData();
            while (rows.next()) {
                StringBuilder line = new StringBuilder("{");
                for (int i = 1; i <= columns.getColumnCount(); i++) {
                    line.append(i == 1 ? "" : ",");
                    quote(columns.getColumnLabel(i).toLowerCase(), line);
                    line.append(':');
                    value(rows, i, line);
                }
                out.println(line.append('}'));
            }
        }
        out.flush();
        if (out.checkError()) {
            throw new java.io.IOException("the rows could not be printed");
        }
    }

    private static void value(ResultSet rows, int i, StringBuilder line) throws Exception {
        Object value = rows.getObject(i);
        if (value == null) {
            line.append("null");
        } else if (value instanceof BigDecimal) {
            line.append(((BigDecimal) value).toPlainString());
        } else if ((value instanceof Double || value instanceof Float) && !Double.isFinite(((Number) value).doubleValue())) {
            quote(value.toString(), line);
        } else if (value instanceof Number || value instanceof Boolean) {
            line.append(value);
        } else {
            quote(rows.getString(i), line);
        }
    }

    private static void quote(String text, StringBuilder line) {
        line.append('"');
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                line.append('\\').append(c);
            } else if (c < ' ') {
                line.append(String.format("\\u%04x", (int) c));
            } else {
                line.append(c);
            }
        }
        line.append('"');
    }
}
