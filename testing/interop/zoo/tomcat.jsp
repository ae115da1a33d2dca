<%-- The origin on Tomcat; see README.md. --%>
<%@ page contentType="text/plain" session="false" import="java.io.ByteArrayOutputStream,java.nio.charset.StandardCharsets" trimDirectiveWhitespaces="true" %>
<%!
    private static final int MOST = 400;

    private static String hex(byte[] bytes, int length) {
        if (length == 0) {
            return "-";
        }
        StringBuilder text = new StringBuilder();
        for (int at = 0; at < length; at++) {
            text.append(String.format("%02x", bytes[at]));
        }
        return text.toString();
    }

    private static String hex(String text) {
        byte[] bytes = text.getBytes(StandardCharsets.ISO_8859_1);
        return hex(bytes, bytes.length);
    }
%>
<%
    // A body that breaks off throws: no line is written then.
    byte[] body = request.getInputStream().readAllBytes();
    String query = request.getQueryString();
    String target = request.getRequestURI() + (query == null ? "" : "?" + query);
    System.out.println("ZOO " + hex(request.getMethod()) + " " + hex(target) + " " + body.length + " " + hex(body, Math.min(body.length, MOST)));
    response.setContentLength(3);
    out.print("ok\n");
%>
